//! A tokenizer with both cores, and which of them answers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fast::pipeline::{EncodeOptions, Override, PipelineToken, PipelineTokenizer};
use stable::tokenizer::pre_tokenizer::OffsetType;
use stable::{Encoding, Model, PreTokenizedString, PreTokenizer};

use crate::codepoints;
use crate::selfcheck;
use crate::spelling::Spelling;

/// Set to anything but 0 by the caller to end an encode early.
pub type Cancel = AtomicU32;

/// Which core to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Core {
    /// The fast core where its answer is shown to be the stable one's, else the stable core.
    Auto,
    /// The stable core.
    Stable,
    /// The fast core, unchecked: for tests and benchmarks that compare the two.
    Fast,
}

/// Which core answered, and why it was that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Route {
    Fast = 0,
    /// The tokenizer has no fast core.
    StableAlways = 1,
    /// The text holds a code point that the cores treat differently.
    StableCodePoint = 2,
    /// The fast core's ids do not spell the text, or it failed.
    StableMismatch = 3,
    /// The caller asked for it.
    StableAsked = 4,
}

#[derive(Debug, PartialEq, Eq)]
pub enum EncodeError {
    Cancelled,
    /// A core refused the text or panicked.
    Core(String),
    /// Core::Fast was asked of a tokenizer without one.
    NoFastCore,
}

impl std::fmt::Display for EncodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cancelled => f.write_str("cancelled"),
            Self::Core(why) => f.write_str(why),
            Self::NoFastCore => f.write_str("this tokenizer has no fast core"),
        }
    }
}

/// The fast core of a tokenizer, or why it has none.
pub enum FastCore {
    Ready(Box<Fast>),
    Refused(String),
}

pub struct Fast {
    pipeline: PipelineTokenizer,
    spelling: Spelling,
    /// Ids that the tokenizer puts around a text with special tokens; None where that is not all it does.
    frame: Option<Frame>,
}

/// What special tokens surround a text.
struct Frame {
    before: Vec<u32>,
    after: Vec<u32>,
}

pub struct Tokenizer {
    stable: stable::Tokenizer,
    fast: FastCore,
    /// Set when special tokens in a text are to be read as text.
    special_as_text: bool,
}

impl Tokenizer {
    /// Loads a tokenizer.json. Truncation and padding that it carries are switched off, as engines do.
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let mut stable = Self::load_stable(json)?;
        stable.with_truncation(None).map_err(|e| e.to_string())?;
        stable.with_padding(None);
        let fast = match caught(|| Fast::load(json, &stable)) {
            Ok(fast) => FastCore::Ready(Box::new(fast)),
            Err(why) => FastCore::Refused(why),
        };
        Ok(Self { stable, fast, special_as_text: false })
    }

    fn load_stable(json: &[u8]) -> Result<stable::Tokenizer, String> {
        caught(|| stable::Tokenizer::from_bytes(json).map_err(|e| e.to_string()))
    }

    /// The stable core alone, with the truncation that the caller wants.
    pub fn truncating(json: &[u8], params: stable::TruncationParams) -> Result<Self, String> {
        let mut stable = Self::load_stable(json)?;
        stable.with_truncation(Some(params)).map_err(|e| e.to_string())?;
        stable.with_padding(None);
        let fast = FastCore::Refused("texts are truncated".to_owned());
        Ok(Self { stable, fast, special_as_text: false })
    }

    /// Reads special tokens in a text as text, with the stable core.
    pub fn read_special_as_text(&mut self) {
        self.special_as_text = true;
        self.stable.set_encode_special_tokens(true);
    }

    pub fn stable(&self) -> &stable::Tokenizer {
        &self.stable
    }

    pub fn fast(&self) -> &FastCore {
        &self.fast
    }

    /// The ids of `text`, with the special tokens that the tokenizer adds by itself if `special`.
    pub fn encode(&self, text: &str, special: bool, core: Core, cancel: &Cancel) -> Result<(Vec<u32>, Route), EncodeError> {
        let why = match (core, &self.fast) {
            (Core::Fast, FastCore::Ready(fast)) => {
                let ids = fast.encode(text, special).ok_or_else(|| EncodeError::Core("the fast core failed".into()))?;
                return Ok((ids, Route::Fast));
            }
            (Core::Fast, FastCore::Refused(_)) => return Err(EncodeError::NoFastCore),
            (Core::Stable, _) => Route::StableAsked,
            (Core::Auto, FastCore::Refused(_)) => Route::StableAlways,
            (Core::Auto, FastCore::Ready(_)) if self.special_as_text => Route::StableAlways,
            (Core::Auto, FastCore::Ready(_)) if !codepoints::agreed(text) => Route::StableCodePoint,
            (Core::Auto, FastCore::Ready(fast)) => match fast.encode_checked(text, special) {
                Some(ids) => return Ok((ids, Route::Fast)),
                None => Route::StableMismatch,
            },
        };
        self.encode_stable(text, special, cancel).map(|encoding| (encoding.get_ids().to_vec(), why))
    }

    /// The stable core's answer with its details. Stops soon after `cancel` is set: between its stages and
    /// between words.
    pub fn encode_stable(&self, text: &str, special: bool, cancel: &Cancel) -> Result<Encoding, EncodeError> {
        let stopped = AtomicBool::new(false);
        let result = caught(|| {
            let stop = || match cancel.load(Ordering::Relaxed) {
                0 => Ok(()),
                _ => {
                    stopped.store(true, Ordering::Relaxed);
                    Err("cancelled".to_owned())
                }
            };
            stop()?;
            let vocabulary = self.stable.get_added_vocabulary();
            let mut words: PreTokenizedString = vocabulary.extract_and_normalize(self.stable.get_normalizer(), text);
            stop()?;
            if let Some(splitter) = self.stable.get_pre_tokenizer() {
                splitter.pre_tokenize(&mut words).map_err(|e| e.to_string())?;
            }
            stop()?;
            let model = self.stable.get_model();
            words
                .tokenize(|word| {
                    stop()?;
                    model.tokenize(word.get())
                })
                .map_err(|e| e.to_string())?;
            let encoding = words.into_encoding(None, 0, OffsetType::Byte).map_err(|e| e.to_string())?;
            self.stable.post_process(encoding, None, special).map_err(|e| e.to_string())
        });
        match result {
            Ok(encoding) => Ok(encoding),
            Err(_) if stopped.load(Ordering::Relaxed) => Err(EncodeError::Cancelled),
            Err(why) => Err(EncodeError::Core(why)),
        }
    }
}

impl Fast {
    fn load(json: &[u8], stable: &stable::Tokenizer) -> Result<Self, String> {
        let json = std::str::from_utf8(json).map_err(|e| e.to_string())?;
        let canonical = fast::canonicalize_str(json).map_err(|e| e.to_string())?;
        let pipeline = fast::from_json(&canonical).map_err(|e| e.to_string())?;
        drop(canonical);
        let loaded = Self { pipeline, spelling: Spelling::new(stable)?, frame: Frame::of(stable) };
        selfcheck::check(stable, |text| loaded.encode(text, false))?;
        Ok(loaded)
    }

    pub fn pipeline(&self) -> &PipelineTokenizer {
        &self.pipeline
    }

    /// The fast core's ids as they are; None where it fails or cannot add special tokens.
    fn encode(&self, text: &str, special: bool) -> Option<Vec<u32>> {
        let frame = match special {
            false => None,
            true => Some(self.frame.as_ref()?),
        };
        let options =
            EncodeOptions { add_special_tokens: false, encode_special_tokens: false, padding: Override::Off, truncation: Override::Off };
        let mut out: Vec<PipelineToken> = Vec::with_capacity(text.len() / 3 + 16);
        if let Some(frame) = frame {
            out.extend(frame.before.iter().map(|&id| PipelineToken::from(id)));
        }
        caught(|| self.pipeline.encode_into(text, &options, &mut out).map_err(|e| e.to_string())).ok()?;
        if let Some(frame) = frame {
            out.extend(frame.after.iter().map(|&id| PipelineToken::from(id)));
        }
        Some(PipelineToken::cast_slice(&out).to_vec())
    }

    /// As encode, and None where the ids do not spell the text.
    fn encode_checked(&self, text: &str, special: bool) -> Option<Vec<u32>> {
        let ids = self.encode(text, special)?;
        let (before, after) = match (special, &self.frame) {
            (true, Some(frame)) => (frame.before.len(), frame.after.len()),
            _ => (0, 0),
        };
        let own = ids.get(before..ids.len().checked_sub(after)?)?;
        self.spelling.spells(own, text, self.pipeline.get_normalizers()).then_some(ids)
    }
}

impl Frame {
    /// Reads what surrounds a text off two texts; None where the two disagree.
    fn of(stable: &stable::Tokenizer) -> Option<Self> {
        let frames: Vec<Self> = ["a", "b 1"].into_iter().map(|text| Self::around(stable, text)).collect::<Option<_>>()?;
        let [first, second] = <[Self; 2]>::try_from(frames).ok()?;
        (first.before == second.before && first.after == second.after).then_some(first)
    }

    fn around(stable: &stable::Tokenizer, text: &str) -> Option<Self> {
        let bare = stable.encode_fast(text, false).ok()?;
        let framed = stable.encode_fast(text, true).ok()?;
        let (bare, framed) = (bare.get_ids(), framed.get_ids());
        if bare.is_empty() {
            return None;
        }
        let at = framed.windows(bare.len()).position(|w| w == bare)?;
        Some(Self { before: framed[..at].to_vec(), after: framed[at + bare.len()..].to_vec() })
    }
}

/// Runs `f` and turns a panic into an error.
pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => {
            let why = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let why = why.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(format!("panic: {}", why.unwrap_or_else(|| "without a message".to_owned())))
        }
    }
}
