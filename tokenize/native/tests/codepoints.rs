//! The sweep behind src/codepoints_table.rs: every code point of the planes that hold characters, in contexts
//! that show its class, through each pre-tokenizer and normaliser that the fast core has.
//!
//! Run it with `cargo test --release --test codepoints -- --ignored`. It fails where the table lacks a code
//! point for which the cores differ; with INFERENCECACHE_UPDATE=1 it writes the table anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use fast::pipeline::{PipelineTokenizer, PreTokenizer as _, PreTokenizerScratch, normalize_all};
use serde_json::{Value, json};
use stable::tokenizer::normalizer::NormalizedString;
use stable::tokenizer::pre_tokenizer::OffsetType;
use stable::{Normalizer as _, OffsetReferential, PreTokenizedString, PreTokenizer as _};

const CL100K: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// One mark of each canonical combining class that common scripts use.
const MARKS: &str =
    "\u{334}\u{93c}\u{3099}\u{94d}\u{5b0}\u{64b}\u{e38}\u{f71}\u{321}\u{31b}\u{302a}\u{323}\u{302d}\u{301}\u{315}\u{35c}\u{35d}\u{345}";

/// Past the supplementary planes in use there are no characters, only unassigned code points, tags and private
/// use: the table holds them whole.
const LAST: u32 = 0x3FFFF;

fn pre_tokenizers() -> Vec<(&'static str, Value)> {
    use bitcannon::regexes::{KIMI_K2, O200K, TEKKEN};
    let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let grammar = |pattern: &str| json!({"type": "Sequence", "pretokenizers": [split(pattern), bytes]});
    let [number, cjk, big] = fast::utils::DEEPSEEK_PATTERNS;
    vec![
        ("gpt2", json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})),
        ("cl100k", grammar(CL100K)),
        ("qwen", grammar(&CL100K.replace("{1,3}", ""))),
        ("o200k", grammar(O200K)),
        ("tekken", grammar(TEKKEN)),
        ("kimi", grammar(KIMI_K2)),
        ("deepseek", json!({"type": "Sequence", "pretokenizers": [split(number), split(cjk), split(big), bytes]})),
        ("digits", json!({"type": "Digits", "individual_digits": true})),
        ("punctuation", json!({"type": "Punctuation", "behavior": "Isolated"})),
        ("whitespace", json!({"type": "Whitespace"})),
        ("whitespace split", json!({"type": "WhitespaceSplit"})),
        ("bert", json!({"type": "BertPreTokenizer"})),
    ]
}

fn normalizers() -> Vec<(&'static str, Value)> {
    ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"].map(|name| (name, json!({"type": name}))).to_vec()
}

/// Both cores of a tokenizer whose one interesting part is the given one.
fn both(part: &str, value: &Value) -> (stable::Tokenizer, PipelineTokenizer) {
    let byte = |b: u8| if matches!(b, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) { Some(b as char) } else { None };
    let mut next = 0x100;
    let mut vocab = serde_json::Map::new();
    for b in 0..=255u8 {
        let c = byte(b).unwrap_or_else(|| {
            next += 1;
            char::from_u32(next - 1).unwrap()
        });
        vocab.insert(c.to_string(), b.into());
    }
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": null,
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": []},
    });
    file[part] = value.clone();
    let text = file.to_string();
    let canonical = fast::canonicalize_str(&text).unwrap_or_else(|e| panic!("{value}: {e}"));
    (text.parse().unwrap(), fast::from_json(&canonical).unwrap_or_else(|e| panic!("{value}: {e}")))
}

fn characters() -> impl Iterator<Item = char> {
    (0x80..=LAST).filter_map(char::from_u32)
}

/// The code points for which `same` is false.
fn sweep(mut same: impl FnMut(char) -> bool) -> BTreeSet<u32> {
    characters().filter(|&c| !same(c)).map(u32::from).collect()
}

fn split_differences(value: &Value) -> BTreeSet<u32> {
    let (stable, fast) = both("pre_tokenizer", value);
    let mut scratch = PreTokenizerScratch::default();
    sweep(|c| {
        let text = format!("a{c}b 1{c}2 !{c}! {c}{c}\n{c} A{c}a'{c}'s{c}  {c}中{c}\u{301}{c}A\t{c}Bc");
        let mut words = PreTokenizedString::from(text.as_str());
        stable.get_pre_tokenizer().unwrap().pre_tokenize(&mut words).unwrap();
        let wanted: Vec<_> = words.get_splits(OffsetReferential::Original, OffsetType::Byte).into_iter().map(|s| s.1).collect();
        let mut spans = Vec::new();
        fast.get_pre_tokenizer().pre_tokenize(&text, &mut scratch, &mut spans).unwrap();
        spans.iter().map(|s| (s.range().start, s.range().end)).eq(wanted)
    })
}

fn normalizer_differences(value: &Value) -> BTreeSet<u32> {
    let (stable, fast) = both("normalizer", value);
    let normalized = |text: &str| normalize_all(fast.get_normalizers(), text, 0).unwrap().into_owned();
    let mut found = sweep(|c| {
        let mut text = format!("{c} a{c} {c}{c} 가{c} ᄀ{c}ᆨ {c}ᆨ");
        for mark in MARKS.chars() {
            write!(text, "x{mark}{c}x{c}{mark}").unwrap();
        }
        let mut wanted = NormalizedString::from(text.as_str());
        stable.get_normalizer().unwrap().normalize(&mut wanted).unwrap();
        normalized(&text) == wanted.get()
    });
    // Only one core composes what a new character decomposes into, so that the first part of it counts too.
    // Compatibility decompositions are never composed again.
    if value["type"] == "NFD" {
        let pairs = found.iter().map(|&c| normalized(&char::from_u32(c).unwrap().to_string()));
        let first_parts: Vec<char> = pairs.filter(|p| p.chars().count() > 1).filter_map(|p| p.chars().next()).collect();
        found.extend(first_parts.into_iter().filter(|c| !c.is_ascii()).map(u32::from));
    }
    found
}

fn ranges(set: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let mut out: Vec<(u32, u32)> = Vec::new();
    for &c in set {
        match out.last_mut() {
            Some(last) if last.1 + 1 == c => last.1 = c,
            _ => out.push((c, c)),
        }
    }
    out
}

#[test]
#[ignore = "minutes long: run it when a core changes"]
fn the_table_holds_every_code_point_for_which_the_cores_differ() {
    let mut all = BTreeSet::new();
    for (name, value) in pre_tokenizers() {
        let found = split_differences(&value);
        println!("{name}: {} code points, {:x?}", found.len(), ranges(&found).iter().take(400).collect::<Vec<_>>());
        all.extend(found);
    }
    for (name, value) in normalizers() {
        let found = normalizer_differences(&value);
        println!("{name}: {} code points, {:x?}", found.len(), ranges(&found).iter().take(400).collect::<Vec<_>>());
        all.extend(found);
    }
    if std::env::var_os("INFERENCECACHE_UPDATE").is_some() {
        write_table(&all);
        return;
    }
    let missing: BTreeSet<u32> =
        all.into_iter().filter(|&c| inferencecache_tokenizers::codepoints::agreed(&char::from_u32(c).unwrap().to_string())).collect();
    assert!(missing.is_empty(), "the table lacks {:x?}", ranges(&missing));
}

fn write_table(set: &BTreeSet<u32>) {
    let mut all = ranges(set);
    match all.last_mut() {
        Some(last) if last.1 == LAST => last.1 = 0x10FFFF,
        _ => all.push((LAST + 1, 0x10FFFF)),
    }
    let mut out = "// Generated by tests/codepoints.rs; do not edit.\n\n/// First and last code point of each range, ascending.\npub(crate) const DIFFERENT: &[(u32, u32)] = &[\n".to_owned();
    for (first, last) in all {
        writeln!(out, "    (0x{first:04X}, 0x{last:04X}),").unwrap();
    }
    out.push_str("];\n");
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/codepoints_table.rs"), out).unwrap();
}
