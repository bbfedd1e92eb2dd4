//! One tokenizer, two cores.
//!
//! [`Tokenizer`] answers with the ids that the stable core (tokenizers 0.23, which engines run) gives, at the
//! speed of the fast core (tokenizers 1.0) wherever the fast core's answer can be shown to be the same:
//!
//! * [`codepoints`]: a text is for the fast core only if both cores treat each of its code points alike;
//! * [`selfcheck`]: a tokenizer is for the fast core only if both cores agree on texts that tell them apart;
//! * [`spelling`]: each answer of the fast core is spelled out again and compared with the text.
//!
//! [`ffi`] is the C interface that the Go package calls; [`binding`] is the one that
//! github.com/daulet/tokenizers links against.

pub mod binding;
pub mod codepoints;
mod codepoints_table;
pub mod ffi;
pub mod selfcheck;
pub mod spelling;
mod tokenizer;

pub use tokenizer::{Cancel, Core, EncodeError, FastCore, Route, Tokenizer};
