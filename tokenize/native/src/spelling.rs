//! Whether ids spell a text: the proof that an answer of the fast core holds.
//!
//! The fast core identifies words of more than 7 bytes by a hash alone: 32 bits of it where it looks a word
//! up in the vocabulary, 64 bits where it remembers an earlier word, with keys that are fixed and public. A
//! collision gives the ids of another word, and whoever searches for one can leave it behind for the texts
//! of others. Another word is spelled with other bytes, so that spelling the ids out again finds it.

use std::ops::Range;

use fast::pipeline::{PipelineNormalizer, normalize_all};
use stable::models::ModelWrapper;

/// What each id stands for.
pub struct Spelling {
    bytes: Vec<u8>,
    /// Where the bytes of an id end; those of the next start there.
    ends: Vec<u32>,
    added: Vec<Option<Added>>,
}

/// An added token: found in the text before it is split into words.
#[derive(Clone, Copy)]
struct Added {
    /// It takes the white space before it, after it.
    lstrip: bool,
    rstrip: bool,
}

impl Spelling {
    /// Reads the spelling of every id off the stable core.
    pub fn new(tokenizer: &stable::Tokenizer) -> Result<Self, String> {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else {
            return Err("the model is not BPE".to_owned());
        };
        let byte_level = is_byte_level(tokenizer);
        let added_tokens = tokenizer.get_added_tokens_decoder();
        let mut by_id: Vec<(u32, String)> = tokenizer.get_vocab(true).into_iter().map(|(token, id)| (id, token)).collect();
        by_id.sort_unstable();
        let size = by_id.last().map_or(0, |(id, _)| *id as usize + 1);
        let mut spelling = Self { bytes: Vec::new(), ends: Vec::with_capacity(size), added: vec![None; size] };
        for (id, token) in by_id {
            while spelling.ends.len() < id as usize {
                spelling.ends.push(spelling.bytes.len() as u32); // an id that nothing has
            }
            if spelling.ends.len() > id as usize {
                return Err(format!("two tokens have the id {id}"));
            }
            match added_tokens.get(&id) {
                Some(added) => {
                    spelling.bytes.extend_from_slice(added.content.as_bytes());
                    spelling.added[id as usize] = Some(Added { lstrip: added.lstrip, rstrip: added.rstrip });
                }
                None if byte_level => spell_byte_level(&token, &mut spelling.bytes),
                None => spell_chars(&token, model.byte_fallback, &mut spelling.bytes),
            }
            spelling.ends.push(spelling.bytes.len() as u32);
        }
        Ok(spelling)
    }

    fn of(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)? as usize;
        let start = if id == 0 { 0 } else { self.ends[id as usize - 1] as usize };
        Some(&self.bytes[start..end])
    }

    fn added(&self, id: u32) -> Option<Added> {
        self.added.get(id as usize).copied().flatten()
    }

    /// Whether `ids` spell `text`: the added tokens as they stand, and what is between them as the
    /// normalizers make it.
    pub fn spells(&self, ids: &[u32], text: &str, normalizers: &[PipelineNormalizer]) -> bool {
        let mut at = 0; // in text
        let mut rest = ids;
        loop {
            let run = rest.iter().position(|&id| self.added(id).is_some()).unwrap_or(rest.len());
            let Some(gap) = self.gap(text, at, rest.get(run).copied()) else {
                return false;
            };
            if !self.run_spells(&rest[..run], text, gap.segment.clone(), normalizers) {
                return false;
            }
            if run == rest.len() {
                return true;
            }
            at = gap.next;
            rest = &rest[run + 1..];
        }
    }

    /// The text in front of the added token `id`, or up to the end without one, from byte `at` on.
    fn gap(&self, text: &str, at: usize, id: Option<u32>) -> Option<Gap> {
        let Some(id) = id else {
            return Some(Gap { segment: at..text.len(), next: text.len() });
        };
        let (content, added) = (std::str::from_utf8(self.of(id)?).ok()?, self.added(id)?);
        let found = at + text[at..].find(content)?;
        let mut gap = Gap { segment: at..found, next: found + content.len() };
        if added.lstrip {
            gap.segment.end = at + text[gap.segment.clone()].trim_end().len();
        }
        if added.rstrip {
            gap.next = text.len() - text[gap.next..].trim_start().len();
        }
        Some(gap)
    }

    fn run_spells(&self, ids: &[u32], text: &str, segment: Range<usize>, normalizers: &[PipelineNormalizer]) -> bool {
        if segment.is_empty() {
            return ids.is_empty();
        }
        let Ok(wanted) = normalize_all(normalizers, &text[segment.clone()], segment.start) else {
            return false;
        };
        let mut rest = wanted.as_bytes();
        for &id in ids {
            let Some(after) = self.of(id).and_then(|spelled| rest.strip_prefix(spelled)) else {
                return false;
            };
            rest = after;
        }
        rest.is_empty()
    }
}

struct Gap {
    segment: Range<usize>,
    /// Where the text goes on behind the added token.
    next: usize,
}

/// Whether the vocabulary is written in the byte-level alphabet, in which each character is one byte.
fn is_byte_level(tokenizer: &stable::Tokenizer) -> bool {
    use stable::pre_tokenizers::PreTokenizerWrapper as P;
    match tokenizer.get_pre_tokenizer() {
        Some(P::ByteLevel(_)) => true,
        Some(P::Sequence(members)) => members.as_ref().iter().any(|m| matches!(m, P::ByteLevel(_))),
        _ => false,
    }
}

/// The byte-level alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 and following.
fn byte_of(c: char) -> Option<u8> {
    let plain = |b: u8| matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    match c as u32 {
        c @ 0..=0xFF => Some(c as u8).filter(|&b| plain(b)),
        c @ 0x100..=0x143 => (0..=0xFFu8).filter(|&b| !plain(b)).nth(c as usize - 0x100),
        _ => None,
    }
}

/// A token with a character outside of the alphabet can never be reached: it is left without bytes.
fn spell_byte_level(token: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in token.chars() {
        let Some(b) = byte_of(c) else {
            out.truncate(start);
            return;
        };
        out.push(b);
    }
}

fn spell_chars(token: &str, byte_fallback: bool, out: &mut Vec<u8>) {
    let byte = token.strip_prefix("<0x").and_then(|t| t.strip_suffix('>')).filter(|hex| hex.len() == 2);
    match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) if byte_fallback => out.push(byte),
        _ => out.extend_from_slice(token.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A byte-level tokenizer with the bytes as its tokens, "ab" and an added token that takes white space.
    fn tokenizer() -> stable::Tokenizer {
        let plain: Vec<char> = (0u32..0x144).filter_map(char::from_u32).filter(|&c| byte_of(c).is_some()).collect();
        let mut vocab: serde_json::Map<String, serde_json::Value> =
            plain.iter().map(|&c| (c.to_string(), byte_of(c).unwrap().into())).collect();
        vocab.insert("ab".into(), 256.into());
        let file = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": {"type": "NFC"}, "post_processor": null, "decoder": null,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "added_tokens": [{"id": 257, "content": "<x>", "single_word": false, "lstrip": true, "rstrip": true, "normalized": false, "special": true}],
            "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]},
        });
        file.to_string().parse().unwrap()
    }

    #[test]
    fn every_byte_has_one_letter_of_the_alphabet() {
        let mut seen: Vec<u8> = (0u32..0x200).filter_map(char::from_u32).filter_map(byte_of).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn ids_spell_their_text_and_no_other() {
        let spelling = Spelling::new(&tokenizer()).unwrap();
        let (a, b, ab, x) = (b'a' as u32, b'b' as u32, 256, 257);
        let space = b' ' as u32;
        let cases: &[(&[u32], &str, bool)] = &[
            (&[], "", true),
            (&[ab, a], "aba", true),
            (&[a, b], "ab", true),
            (&[ab], "aba", false),
            (&[ab, b], "aba", false),
            (&[ab, a, a], "aba", false),
            (&[a, x, b], "a<x>b", true),
            (&[a, x, b], "a  <x>\n b", true),
            (&[a, space, x, b], "a <x>b", false),
            (&[x, x], "<x><x>", true),
            (&[x], "<x><x>", false),
            (&[a, x], "a", false),
            (&[999], "a", false),
            (&[0xC3, 0xA9], "e\u{301}", true),
            (&[b'e' as u32, 0xCC, 0x81], "e\u{301}", false),
        ];
        let nfc = fast::canonicalize_str(&serde_json::to_string(&tokenizer()).unwrap()).unwrap();
        let pipeline = fast::from_json(&nfc).unwrap();
        for (ids, text, want) in cases {
            assert_eq!(spelling.spells(ids, text, pipeline.get_normalizers()), *want, "{ids:?} {text:?}");
        }
    }
}
