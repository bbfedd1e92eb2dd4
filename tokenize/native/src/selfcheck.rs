//! Whether both cores of one tokenizer agree on texts that tell them apart, checked once when it is loaded.
//!
//! The fast core reads some tokenizer files differently than the stable one, without an error: an option that
//! it ignores, a pattern that it takes for a similar one. Such a tokenizer is served by the stable core alone.

use stable::models::ModelWrapper;

use crate::codepoints;

/// Characters of every class that a pre-tokenizer tells apart, in several scripts and of several lengths.
const ALPHABET: &[&str] = &[
    "a",
    "b",
    "st",
    "THE",
    "the",
    "Aa",
    "aA",
    "é",
    "É",
    "ß",
    "ǅ",
    "ø",
    "Ж",
    "ж",
    "λ",
    "Ω",
    "ʰ",
    "ª",
    "א",
    "ع",
    "क",
    "ก",
    "中",
    "文",
    "の",
    "カ",
    "한",
    "국",
    "𝒳",
    "𠀀",
    "0",
    "1",
    "23",
    "456",
    "7890",
    "٣",
    "Ⅻ",
    "½",
    "²",
    "〇",
    " ",
    " ",
    "  ",
    "   ",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "\u{2003}",
    "\u{85}",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\u{2028}",
    "\u{b}",
    "'",
    "'s",
    "'S",
    "'t",
    "'re",
    "'VE",
    "'m",
    "'ll",
    "'LL",
    "'d",
    "'ſ",
    "’s",
    "!",
    "?!",
    "...",
    ",",
    ".",
    "-",
    "_",
    "__",
    "/",
    "\\",
    "#",
    "(",
    ")",
    "{}",
    "[]",
    "<|",
    "|>",
    "@",
    "&",
    "+",
    "=",
    "^",
    "~",
    "$",
    "€",
    "™",
    "→",
    "∑",
    "…",
    "、",
    "。",
    "！",
    "«",
    "—",
    "‿",
    "\u{301}",
    "\u{308}",
    "\u{93f}",
    "\u{e31}",
    "\u{20dd}",
    "\u{fe0f}",
    "\u{200d}",
    "\u{200c}",
    "\u{200b}",
    "\u{ad}",
    "\u{feff}",
    "😀",
    "👩‍💻",
    "🏽",
    "🇫🇷",
    "\0",
    "\u{1}",
    "\u{7f}",
    "\u{9f}",
    "\u{fffd}",
    "\u{e000}",
    "ﬁ",
    "Å",
    "e\u{301}",
    "가",
    "각",
    "ᄀ",
    "ᅡ",
    "ㄱ",
    "Ａ",
    "１",
    "http://",
    "foo_bar",
    "CamelCase",
    "Ünïcödé",
    "supercalifragilistic",
    "internationalization",
];

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const GENERATED_TEXTS: usize = 1500;
const ADDED_TOKENS: usize = 64;
/// Vocabulary entries compared where a sample suffices.
const SAMPLED_ENTRIES: usize = 4000;

/// Compares both cores; an error quotes the first text that they disagree on.
pub fn check(tokenizer: &stable::Tokenizer, fast: impl Fn(&str) -> Option<Vec<u32>>) -> Result<(), String> {
    let compare = |text: &str| {
        let wanted = tokenizer.encode_fast(text, false).map_err(|e| e.to_string())?;
        match fast(text) {
            Some(ids) if ids == wanted.get_ids() => Ok(()),
            Some(_) => Err(format!("the fast core has other ids for {text:?}")),
            None => Err(format!("the fast core fails for {text:?}")),
        }
    };
    let mut random = Random(SEED);
    for _ in 0..GENERATED_TEXTS {
        compare(&generated(&mut random))?;
    }
    for text in around_added_tokens(tokenizer) {
        compare(&text)?;
    }
    for (id, entry) in entries(tokenizer) {
        // An entry that encodes to itself needs no second opinion, which would take a second for all of them.
        if fast(&entry).is_none_or(|ids| ids != [id]) {
            compare(&entry)?;
        }
    }
    Ok(())
}

/// A text of both cores' common code points, 1 to 48 pieces long.
fn generated(random: &mut Random) -> String {
    let pieces = 1 + random.below(48);
    let text: String = (0..pieces).map(|_| ALPHABET[random.below(ALPHABET.len())]).collect();
    text.chars().filter(|c| c.is_ascii() || codepoints::agreed(c.encode_utf8(&mut [0; 4]))).collect()
}

/// Added tokens alone, glued to words, among spaces and twice in a row.
fn around_added_tokens(tokenizer: &stable::Tokenizer) -> Vec<String> {
    let mut tokens: Vec<_> = tokenizer.get_added_tokens_decoder().into_iter().collect();
    tokens.sort_unstable_by_key(|(id, _)| *id);
    let step = tokens.len().div_ceil(ADDED_TOKENS).max(1);
    let sample = tokens.iter().step_by(step).map(|(_, token)| token.content.as_str());
    sample.filter(|t| codepoints::agreed(t)).flat_map(|t| [t.to_owned(), format!("a{t}b"), format!("  {t} \n{t}{t}c")]).collect()
}

/// Vocabulary entries and their texts: all of them where an entry wins over the merges, else a sample.
fn entries(tokenizer: &stable::Tokenizer) -> Vec<(u32, String)> {
    let all = matches!(tokenizer.get_model(), ModelWrapper::BPE(model) if model.ignore_merges);
    let mut ids: Vec<u32> = tokenizer.get_vocab(false).into_values().collect();
    ids.sort_unstable();
    let step = if all { 1 } else { ids.len().div_ceil(SAMPLED_ENTRIES).max(1) };
    let decoded = ids.iter().step_by(step).filter_map(|&id| Some((id, tokenizer.decode(&[id], false).ok()?)));
    decoded.filter(|(_, text)| !text.is_empty() && !text.contains('\u{fffd}') && codepoints::agreed(text)).collect()
}

/// SplitMix64: the same texts on every load.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}
