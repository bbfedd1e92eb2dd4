//! The C interface that github.com/daulet/tokenizers v1.27.0 links against, so that a program which uses that
//! binding gets the same ids from the same library. Its texts end at the first NUL, and bytes that are not
//! UTF-8 become U+FFFD, as that binding has it; the functions of [`crate::ffi`] do neither.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use stable::{Encoding, TruncationDirection, TruncationParams};

use crate::ffi::{bytes, c_string, set_error};
use crate::tokenizer::caught;
use crate::{Cancel, Core, Tokenizer};

#[repr(C)]
pub struct Options {
    encode_special_tokens: bool,
}

#[repr(C)]
pub struct EncodeOptions {
    add_special_tokens: bool,
    return_type_ids: bool,
    return_tokens: bool,
    return_special_tokens_mask: bool,
    return_attention_mask: bool,
    return_offsets: bool,
}

/// Arrays of `len` elements, `offsets` of twice as many; null where not asked for.
#[repr(C)]
pub struct Buffer {
    ids: *mut u32,
    type_ids: *mut u32,
    special_tokens_mask: *mut u32,
    attention_mask: *mut u32,
    tokens: *mut *mut c_char,
    offsets: *mut usize,
    len: usize,
}

impl Buffer {
    const EMPTY: Self = Self {
        ids: ptr::null_mut(),
        type_ids: ptr::null_mut(),
        special_tokens_mask: ptr::null_mut(),
        attention_mask: ptr::null_mut(),
        tokens: ptr::null_mut(),
        offsets: ptr::null_mut(),
        len: 0,
    };
}

/// The binding's Go side refers to this symbol, so that a library of another interface fails to link.
#[unsafe(no_mangle)]
pub extern "C" fn tokenizers_version_1_26_0() {}

#[unsafe(no_mangle)]
pub extern "C" fn tokenizers_version() -> *const c_char {
    c"1.26.0".as_ptr()
}

fn boxed(loaded: Result<Tokenizer, String>, error: *mut *mut c_char) -> *mut c_void {
    match loaded {
        Ok(tokenizer) => Box::into_raw(Box::new(tokenizer)).cast(),
        Err(why) => {
            unsafe { set_error(error, &format!("load tokenizer: {why}")) };
            ptr::null_mut()
        }
    }
}

/// # Safety
/// `json` is valid for `len` bytes, `options` for a read and `error` for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_from_bytes(json: *const u8, len: u32, options: *const Options, error: *mut *mut c_char) -> *mut c_void {
    let mut loaded = Tokenizer::from_json(unsafe { bytes(json, len as usize) });
    if let Ok(tokenizer) = &mut loaded
        && !options.is_null()
        && unsafe { &*options }.encode_special_tokens
    {
        tokenizer.read_special_as_text();
    }
    boxed(loaded, error)
}

/// # Safety
/// `json` is valid for `len` bytes and `error` for a write. `direction` is 0 to cut on the left, 1 on the right.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_from_bytes_with_truncation(
    json: *const u8,
    len: u32,
    max_len: usize,
    direction: u8,
    error: *mut *mut c_char,
) -> *mut c_void {
    let direction = match direction {
        0 => TruncationDirection::Left,
        1 => TruncationDirection::Right,
        other => return boxed(Err(format!("truncation direction {other}: want 0 (left) or 1 (right)")), error),
    };
    let params = TruncationParams { max_length: max_len, direction, ..Default::default() };
    boxed(Tokenizer::truncating(unsafe { bytes(json, len as usize) }, params), error)
}

/// # Safety
/// `path` is a C string and `error` valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_from_file(path: *const c_char, error: *mut *mut c_char) -> *mut c_void {
    if path.is_null() {
        return boxed(Err("the path is null".to_owned()), error);
    }
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy().into_owned();
    let json = std::fs::read(&path).map_err(|e| format!("read {path}: {e}"));
    boxed(json.and_then(|json| Tokenizer::from_json(&json)), error)
}

/// # Safety
/// `error` is valid for a write. Vocabularies in tiktoken's own format are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_from_tiktoken(
    _model: *const c_char,
    _config: *const c_char,
    _pattern: *const c_char,
    error: *mut *mut c_char,
) -> *mut c_void {
    boxed(Err("tiktoken files are not read: convert them to a tokenizer.json".to_owned()), error)
}

/// # Safety
/// `tokenizer` comes from a load function and is not freed, `message` is a C string, `options` valid for a read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_encode(tokenizer: *mut c_void, message: *const c_char, options: *const EncodeOptions) -> Buffer {
    if tokenizer.is_null() || message.is_null() || options.is_null() {
        return Buffer::EMPTY;
    }
    let (tokenizer, options) = unsafe { (&*tokenizer.cast::<Tokenizer>(), &*options) };
    let text = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    let never = Cancel::new(0);
    let details = options.return_type_ids
        || options.return_tokens
        || options.return_special_tokens_mask
        || options.return_attention_mask
        || options.return_offsets;
    if !details {
        return match tokenizer.encode(&text, options.add_special_tokens, Core::Auto, &never) {
            Ok((ids, _)) => Buffer { len: ids.len(), ids: leak(ids), ..Buffer::EMPTY },
            Err(_) => Buffer::EMPTY,
        };
    }
    match tokenizer.encode_stable(&text, options.add_special_tokens, &never) {
        Ok(encoding) => detailed(&encoding, options),
        Err(_) => Buffer::EMPTY,
    }
}

fn detailed(encoding: &Encoding, options: &EncodeOptions) -> Buffer {
    let if_asked = |asked: bool, values: &[u32]| if asked { leak(values.to_vec()) } else { ptr::null_mut() };
    let tokens = || encoding.get_tokens().iter().map(|t| c_string(&t.replace('\0', "\u{fffd}"))).collect();
    let offsets = || encoding.get_offsets().iter().flat_map(|&(from, to)| [from, to]).collect();
    Buffer {
        ids: leak(encoding.get_ids().to_vec()),
        type_ids: if_asked(options.return_type_ids, encoding.get_type_ids()),
        special_tokens_mask: if_asked(options.return_special_tokens_mask, encoding.get_special_tokens_mask()),
        attention_mask: if_asked(options.return_attention_mask, encoding.get_attention_mask()),
        tokens: if options.return_tokens { leak(tokens()) } else { ptr::null_mut() },
        offsets: if options.return_offsets { leak(offsets()) } else { ptr::null_mut() },
        len: encoding.len(),
    }
}

/// Hands a vector over to C: its capacity is its length.
fn leak<T>(values: Vec<T>) -> *mut T {
    ManuallyDrop::new(values.into_boxed_slice()).as_mut_ptr()
}

/// # Safety
/// `data` is null or comes from leak with `len` elements.
unsafe fn reclaim<T>(data: *mut T, len: usize) -> Box<[T]> {
    if data.is_null() {
        return Box::default();
    }
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(data, len)) }
}

/// # Safety
/// `tokenizer` comes from a load function and is not freed; `ids` is valid for `len` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_decode(tokenizer: *mut c_void, ids: *const u32, len: u32, skip_special_tokens: bool) -> *mut c_char {
    if tokenizer.is_null() || ids.is_null() {
        return ptr::null_mut();
    }
    let (tokenizer, ids) = unsafe { (&*tokenizer.cast::<Tokenizer>(), std::slice::from_raw_parts(ids, len as usize)) };
    let text = caught(|| tokenizer.stable().decode(ids, skip_special_tokens).map_err(|e| e.to_string()));
    text.ok().and_then(|text| CString::new(text).ok()).map_or(ptr::null_mut(), CString::into_raw)
}

/// # Safety
/// `tokenizer` is null or comes from a load function and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_vocab_size(tokenizer: *mut c_void) -> u32 {
    match unsafe { tokenizer.cast::<Tokenizer>().as_ref() } {
        Some(tokenizer) => tokenizer.stable().get_vocab_size(true) as u32,
        None => 0,
    }
}

/// # Safety
/// `tokenizer` is null or comes from a load function, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_free_tokenizer(tokenizer: *mut c_void) {
    unsafe { crate::ffi::ic_tokenizer_free(tokenizer) }
}

/// # Safety
/// `buffer` comes from tokenizers_encode and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_free_buffer(buffer: Buffer) {
    unsafe {
        for values in [buffer.ids, buffer.type_ids, buffer.special_tokens_mask, buffer.attention_mask] {
            drop(reclaim(values, buffer.len));
        }
        drop(reclaim(buffer.offsets, 2 * buffer.len));
        for token in reclaim(buffer.tokens, buffer.len) {
            crate::ffi::ic_string_free(token);
        }
    }
}

/// # Safety
/// `string` is null or comes from this library and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tokenizers_free_string(string: *mut c_char) {
    unsafe { crate::ffi::ic_string_free(string) }
}
