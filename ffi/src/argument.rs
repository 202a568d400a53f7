//! Arguments: looked at before they are used, and written only on success.

use std::ffi::{CStr, c_char, c_uint};
use std::mem::MaybeUninit;
use std::path::Path;

use crate::error::{Fault, rc_code};

/// Refuses NULL.
pub(crate) fn not_null<T>(pointer: *const T, name: &str) -> Result<(), Fault> {
    if pointer.is_null() { Err(Fault::null(name)) } else { Ok(()) }
}

/// Text that must be there.
///
/// # Safety
/// `pointer` is NULL or a string that ends in NUL and stays as it is during the call.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Fault> {
    // SAFETY: the same promise.
    unsafe { optional_text(pointer, name) }?.ok_or_else(|| Fault::null(name))
}

/// Text that may be absent.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_text<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|e| {
        let place = e.valid_up_to();
        Fault::new(
            rc_code::RC_INVALID_UTF8,
            "invalid_argument",
            format!("{name} is not UTF-8: wrong from byte {place} on"),
        )
    })
}

/// The path of a file or folder.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn path<'a>(pointer: *const c_char, name: &str) -> Result<&'a Path, Fault> {
    // SAFETY: the same promise.
    let path = unsafe { text(pointer, name) }?;
    if path.is_empty() {
        return Err(Fault::argument(format!("{name} is empty")));
    }
    Ok(Path::new(path))
}

/// A path that may be absent.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn optional_path<'a>(
    pointer: *const c_char,
    name: &str,
) -> Result<Option<&'a Path>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the same promise.
    unsafe { path(pointer, name) }.map(Some)
}

/// `count` values; `pointer` may be NULL if there are none.
///
/// # Safety
/// `pointer` is NULL or points to `count` values that stay as they are during the call.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T], Fault> {
    if count == 0 {
        return Ok(&[]);
    }
    not_null(pointer, name)?;
    let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
    if bytes.is_none() || !pointer.is_aligned() {
        return Err(Fault::argument(format!("{name} cannot hold {count} values")));
    }
    // SAFETY: the caller's promise; length and alignment were checked.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Where values are that C may look at; NULL if there are none.
pub(crate) fn first<T>(values: &[T]) -> *const T {
    if values.is_empty() { std::ptr::null() } else { values.as_ptr() }
}

/// A place for a result.
pub(crate) struct Output<T>(*mut T);

impl<T> Output<T> {
    /// # Safety
    /// `pointer` is NULL or can be written during the call.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Fault> {
        not_null(pointer, name).map(|()| Self(pointer))
    }

    /// The last thing that a function does.
    pub(crate) fn set(self, value: T) {
        // SAFETY: the promise of `new`. What was there is not dropped: it may be anything.
        unsafe { self.0.write(value) }
    }
}

impl Output<u8> {
    /// Like [`Output::set`], for a buffer that was checked to be large enough.
    pub(crate) fn set_all(self, bytes: &[u8]) {
        // SAFETY: the promise of `new`, for as many bytes.
        unsafe { self.0.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}

/// A structure that the caller fills, and that may have fewer or more fields than ours if the caller was built for
/// another version.
///
/// # Safety
/// `#[repr(C)]`, begins with `struct_size: usize`, and every pattern of bytes that a C compiler makes of its fields is a
/// value; so are zeros.
pub(crate) unsafe trait Versioned: Copy {
    /// Nothing but the size: numbers are 0, pointers NULL, enumerators the one that is 0.
    const EMPTY: Self = {
        let mut empty = MaybeUninit::<Self>::zeroed();
        // SAFETY: the structure begins with its size, and zeros are a value of every other field.
        unsafe {
            empty.as_mut_ptr().cast::<usize>().write(size_of::<Self>());
            empty.assume_init()
        }
    };
    /// What an absent structure stands for, and the fields that the caller does not know.
    const DEFAULT: Self = Self::EMPTY;
    /// Size of the structure in the first version.
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// The caller's structure, or the default for NULL.
///
/// # Safety
/// `pointer` is NULL or points to as many bytes as its first field says.
pub(crate) unsafe fn versioned<T: Versioned>(pointer: *const T, name: &str) -> Result<T, Fault> {
    if pointer.is_null() {
        return Ok(T::DEFAULT);
    }
    let bytes = pointer.cast::<u8>();
    // SAFETY: the caller's promise; the first field is the size.
    let size = unsafe { pointer.cast::<usize>().read_unaligned() };
    check_size::<T>(size, name)?;
    for place in size_of::<T>()..size {
        // SAFETY: within what the caller says is there.
        if unsafe { bytes.add(place).read() } != 0 {
            return Err(Fault::new(
                rc_code::RC_UNSUPPORTED,
                "unsupported",
                format!("{name} uses a field that this version of the library does not know"),
            ));
        }
    }
    let mut value = MaybeUninit::new(T::DEFAULT);
    // SAFETY: both have that many bytes, and what is copied are whole fields, since sizes only grow by fields.
    unsafe {
        bytes.copy_to_nonoverlapping(value.as_mut_ptr().cast(), size.min(size_of::<T>()));
        Ok(value.assume_init())
    }
}

/// A structure of the caller's that is to be filled.
pub(crate) struct VersionedOutput<T> {
    pointer: *mut T,
    size: usize,
}

impl<T: Versioned> VersionedOutput<T> {
    /// # Safety
    /// `pointer` is NULL or points to as many bytes as its first field says, which can be written.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Fault> {
        not_null(pointer, name)?;
        // SAFETY: the caller's promise.
        let size = unsafe { pointer.cast::<usize>().read_unaligned() };
        check_size::<T>(size, name)?;
        Ok(Self { pointer, size })
    }

    /// Writes the fields that the caller knows, and leaves `struct_size` as it is.
    pub(crate) fn set(self, value: &T) {
        let head = size_of::<usize>();
        let count = self.size.min(size_of::<T>()) - head;
        // SAFETY: the promise of `new`; the size is at least that of the first version.
        unsafe {
            let from = std::ptr::from_ref(value).cast::<u8>().add(head);
            from.copy_to_nonoverlapping(self.pointer.cast::<u8>().add(head), count);
        }
    }
}

fn check_size<T: Versioned>(size: usize, name: &str) -> Result<(), Fault> {
    // No structure will ever be larger; what is, was not initialised.
    const LARGEST: usize = 4096;
    if (T::FIRST_SIZE..=LARGEST).contains(&size) {
        return Ok(());
    }
    Err(Fault::argument(format!("{name} has a struct_size of {size}: it was not initialised"))
        .hint("start from the macro of its type whose name ends in _INIT"))
}

/// The meaning of an enumerator that C passed. C does not keep its enums to their enumerators, so `raw` is not yet known
/// to be one.
pub(crate) fn choice<E: Copy, V: Copy>(
    raw: MaybeUninit<E>,
    name: &str,
    known: &[(E, V)],
) -> Result<V, Fault> {
    let number = number_of(raw);
    let found = known.iter().find(|(e, _)| number_of(MaybeUninit::new(*e)) == number);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| Fault::argument(format!("{name} is {number}, which is no {}", short_name::<E>())))
}

pub(crate) fn number_of<E: Copy>(raw: MaybeUninit<E>) -> c_uint {
    const { assert!(size_of::<E>() == size_of::<c_uint>()) };
    // SAFETY: it has the size of a C enum, whose bytes a C compiler always sets.
    unsafe { std::mem::transmute_copy(&raw) }
}

fn short_name<E>() -> &'static str {
    std::any::type_name::<E>().rsplit("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(C)]
    struct Options {
        struct_size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: plain numbers after the size.
    unsafe impl Versioned for Options {
        const DEFAULT: Self = Self { struct_size: size_of::<Self>(), first: 1, second: 2 };
        const FIRST_SIZE: usize = 16;
    }

    fn read(words: &[u64]) -> Result<Options, Fault> {
        // SAFETY: every test gives as many words as the first says, or a size that is refused.
        unsafe { versioned(words.as_ptr().cast(), "options") }
    }

    #[test]
    fn older_and_newer_callers_are_understood() {
        assert_eq!(read(&[16, 7]).unwrap(), Options { struct_size: 16, first: 7, second: 2 });
        assert_eq!(read(&[24, 7, 8]).unwrap().second, 8);
        assert_eq!(read(&[32, 7, 8, 0]).unwrap().second, 8);
        assert_eq!(read(&[32, 7, 8, 9]).unwrap_err().code, rc_code::RC_UNSUPPORTED);
        for size in [0, 8, 15, 5000, u64::MAX] {
            assert_eq!(read(&[size, 7, 8, 9]).unwrap_err().code, rc_code::RC_INVALID_ARGUMENT, "{size}");
        }
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { versioned(std::ptr::null::<Options>(), "options") }.unwrap(), Options::DEFAULT);
    }

    #[test]
    fn only_the_fields_that_the_caller_knows_are_written() {
        let mut words = [16u64, 0, 99];
        // SAFETY: three words, of which two are said to be there.
        let output =
            unsafe { VersionedOutput::<Options>::new(words.as_mut_ptr().cast(), "options") }.unwrap();
        output.set(&Options::DEFAULT);
        assert_eq!(words, [16, 1, 99]);
    }

    #[test]
    fn what_is_no_enumerator_is_refused() {
        #[derive(Clone, Copy)]
        #[repr(C)]
        enum letter {
            A = 1,
            B = 2,
        }
        let known = [(letter::A, 'a'), (letter::B, 'b')];
        assert_eq!(choice(MaybeUninit::new(letter::B), "x", &known).unwrap(), 'b');
        // SAFETY: `MaybeUninit` may hold what is no enumerator.
        let wrong: MaybeUninit<letter> = unsafe { std::mem::transmute(77u32) };
        assert_eq!(choice(wrong, "x", &known).unwrap_err().message, "x is 77, which is no letter");
    }
}
