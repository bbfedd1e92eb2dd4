//! The C interface of tokenizers.h, with lengths instead of terminators, so that a text may hold NUL.

use std::ffi::{CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

use crate::{Cancel, Core, EncodeError, FastCore, Tokenizer};

const OK: i32 = 0;
const INVALID_UTF8: i32 = 1;
const CANCELLED: i32 = 2;
const FAILED: i32 = 3;
const NO_FAST_CORE: i32 = 4;

#[repr(C)]
pub struct Ids {
    ids: *mut u32,
    len: usize,
    cap: usize,
    route: u8,
}

/// A C string of `text`; a NUL inside ends it early.
pub(crate) fn c_string(text: &str) -> *mut c_char {
    let clean = text.split('\0').next().unwrap_or_default();
    CString::new(clean).map_or(ptr::null_mut(), CString::into_raw)
}

/// # Safety
/// `error` is null or valid for a write.
pub(crate) unsafe fn set_error(error: *mut *mut c_char, why: &str) {
    if !error.is_null() {
        unsafe { *error = c_string(why) }
    }
}

/// # Safety
/// `data` is null or valid for `len` bytes for as long as the result is used.
pub(crate) unsafe fn bytes<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// # Safety
/// `json` is valid for `len` bytes, and `error` for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_tokenizer_load(json: *const u8, len: usize, error: *mut *mut c_char) -> *mut c_void {
    match Tokenizer::from_json(unsafe { bytes(json, len) }) {
        Ok(tokenizer) => Box::into_raw(Box::new(tokenizer)).cast(),
        Err(why) => {
            unsafe { set_error(error, &why) };
            ptr::null_mut()
        }
    }
}

/// # Safety
/// `tokenizer` comes from a load function and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_tokenizer_slow_because(tokenizer: *const c_void) -> *mut c_char {
    match unsafe { &*tokenizer.cast::<Tokenizer>() }.fast() {
        FastCore::Ready(_) => ptr::null_mut(),
        FastCore::Refused(why) => c_string(why),
    }
}

/// # Safety
/// `tokenizer` comes from a load function and is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_tokenizer_vocab_size(tokenizer: *const c_void) -> usize {
    unsafe { &*tokenizer.cast::<Tokenizer>() }.stable().get_vocab_size(true)
}

/// # Safety
/// `tokenizer` comes from a load function and is not freed; `text` is valid for `len` bytes, `cancel` for
/// atomic reads, `out` and `error` for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_tokenizer_encode(
    tokenizer: *const c_void,
    text: *const u8,
    len: usize,
    special: bool,
    core: u8,
    cancel: *const u32,
    out: *mut Ids,
    error: *mut *mut c_char,
) -> i32 {
    let tokenizer = unsafe { &*tokenizer.cast::<Tokenizer>() };
    let Ok(text) = std::str::from_utf8(unsafe { bytes(text, len) }) else {
        return INVALID_UTF8;
    };
    let core = match core {
        1 => Core::Stable,
        2 => Core::Fast,
        _ => Core::Auto,
    };
    let cancel = unsafe { Cancel::from_ptr(cancel.cast_mut()) };
    match tokenizer.encode(text, special, core, cancel) {
        Ok((ids, route)) => {
            let mut ids = ManuallyDrop::new(ids);
            unsafe { *out = Ids { ids: ids.as_mut_ptr(), len: ids.len(), cap: ids.capacity(), route: route as u8 } };
            OK
        }
        Err(EncodeError::Cancelled) => CANCELLED,
        Err(EncodeError::NoFastCore) => NO_FAST_CORE,
        Err(EncodeError::Core(why)) => {
            unsafe { set_error(error, &why) };
            FAILED
        }
    }
}

/// # Safety
/// `ids` comes from ic_tokenizer_encode and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_ids_free(ids: Ids) {
    if !ids.ids.is_null() {
        drop(unsafe { Vec::from_raw_parts(ids.ids, ids.len, ids.cap) });
    }
}

/// # Safety
/// `string` is null or comes from this library and is freed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_string_free(string: *mut c_char) {
    if !string.is_null() {
        drop(unsafe { CString::from_raw(string) });
    }
}

/// # Safety
/// `tokenizer` is null or comes from a load function, and no other call uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ic_tokenizer_free(tokenizer: *mut c_void) {
    if !tokenizer.is_null() {
        drop(unsafe { Box::from_raw(tokenizer.cast::<Tokenizer>()) });
    }
}
