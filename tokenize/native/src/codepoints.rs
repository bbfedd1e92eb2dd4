//! Which code points both cores treat alike.
//!
//! The cores carry different editions of Unicode (normalisation: 9.0 and 17.0; character classes: 16.0 and
//! 17.0), so that they split and normalise texts with recently assigned code points differently.
//! `codepoints_table.rs` lists every code point for which a sweep saw a difference, in any pre-tokenizer or
//! normaliser that the fast core has; `tests/codepoints.rs` is that sweep and regenerates the table.

use std::sync::LazyLock;

use crate::codepoints_table::DIFFERENT;

/// One bit for each code point of the basic multilingual plane: 1 where the cores may differ.
static BMP: LazyLock<Box<[u64; 1024]>> = LazyLock::new(|| {
    let mut bits = Box::new([0u64; 1024]);
    for &(first, last) in DIFFERENT {
        for c in first..=last.min(0xFFFF) {
            bits[(c >> 6) as usize] |= 1 << (c & 63);
        }
    }
    bits
});

/// Whether both cores treat each code point of `text` alike.
pub fn agreed(text: &str) -> bool {
    let bits = &**BMP;
    let mut rest = text;
    loop {
        // Below U+0080 the cores agree, so that only what follows the first other byte is decoded.
        let Some(at) = rest.bytes().position(|b| b >= 0x80) else {
            return true;
        };
        let mut chars = rest[at..].chars();
        for c in chars.by_ref() {
            let c = c as u32;
            if c < 0x80 {
                break;
            }
            if c > 0xFFFF {
                if differs(c) {
                    return false;
                }
            } else if bits[(c >> 6) as usize] >> (c & 63) & 1 == 1 {
                return false;
            }
        }
        rest = chars.as_str();
    }
}

fn differs(c: u32) -> bool {
    let after = DIFFERENT.partition_point(|&(first, _)| first <= c);
    after > 0 && c <= DIFFERENT[after - 1].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_of_old_scripts_is_agreed() {
        for text in ["", "hello", "naïve café", "日本語とかな", "한국어", "Привет", "שלום", "नमस्ते", "👍🏽 ok", "\0\u{1}"]
        {
            assert!(agreed(text), "{text:?}");
        }
    }

    #[test]
    fn the_bitmap_and_the_table_say_the_same() {
        for c in (0x80..0x30000).filter_map(char::from_u32) {
            assert_eq!(agreed(&format!("a{c}b")), !differs(c as u32), "U+{:04X}", c as u32);
        }
    }

    #[test]
    fn ranges_are_sorted_and_apart() {
        assert!(DIFFERENT.iter().all(|&(first, last)| first <= last && first >= 0x80));
        assert!(DIFFERENT.windows(2).all(|w| w[0].1 + 1 < w[1].0));
    }
}
