//! The values of one attribute, wherever in the buffer and of whatever type they are.

use super::document::Document;

/// How one number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Component {
    SignedByte,
    Byte,
    SignedShort,
    Short,
    Float,
}

impl Component {
    fn of(code: u32) -> Option<Self> {
        Some(match code {
            5120 => Self::SignedByte,
            5121 => Self::Byte,
            5122 => Self::SignedShort,
            5123 => Self::Short,
            5126 => Self::Float,
            _ => return None,
        })
    }

    /// In bytes.
    fn size(self) -> usize {
        match self {
            Self::SignedByte | Self::Byte => 1,
            Self::SignedShort | Self::Short => 2,
            Self::Float => 4,
        }
    }

    /// The number that `bytes` begin with, which are as many as [`Component::size`] says; integers from -1 or 0 to 1 if they
    /// are normalised.
    fn value(self, bytes: &[u8], normalised: bool) -> f32 {
        let (value, most): (f32, f32) = match (self, bytes) {
            (Self::SignedByte, [a, ..]) => (f32::from(a.cast_signed()), 127.0),
            (Self::Byte, [a, ..]) => (f32::from(*a), 255.0),
            (Self::SignedShort, [a, b, ..]) => (f32::from(i16::from_le_bytes([*a, *b])), 32_767.0),
            (Self::Short, [a, b, ..]) => (f32::from(u16::from_le_bytes([*a, *b])), 65_535.0),
            (Self::Float, [a, b, c, d, ..]) => return f32::from_le_bytes([*a, *b, *c, *d]),
            _ => return f32::NAN,
        };
        if normalised { (value / most).max(-1.0) } else { value }
    }
}

/// An attribute of `N` numbers a splat.
pub(super) struct Column<'a, const N: usize> {
    /// From the first number to behind the last.
    bytes: &'a [u8],
    /// From one splat to the next, bytes.
    stride: usize,
    component: Component,
    normalised: bool,
    pub(super) count: usize,
}

impl<'a, const N: usize> Column<'a, N> {
    /// The attribute of the accessor of that number; `name` is for messages.
    pub(super) fn open(
        document: &Document,
        number: u32,
        name: &str,
        buffer: &'a [u8],
    ) -> Result<Self, String> {
        let wrong = |why: &str| format!("its attribute {name} {why}");
        let accessor = document.accessors.get(number as usize).ok_or_else(|| wrong("has no accessor"))?;
        let shape = if N == 1 { "SCALAR".to_owned() } else { format!("VEC{N}") };
        if *accessor.shape != *shape {
            return Err(wrong(&format!("is of type {:?} instead of {shape}", accessor.shape)));
        }
        let component = Component::of(accessor.component_type).ok_or_else(|| {
            wrong(&format!("has components of the unknown type {}", accessor.component_type))
        })?;
        if accessor.sparse.is_some() {
            return Err(wrong("is sparse, which is not supported"));
        }
        let view = accessor.buffer_view.ok_or_else(|| wrong("has no values in the file"))?;
        let view = document.buffer_views.get(view as usize).ok_or_else(|| wrong("has no buffer view"))?;
        if let Some(extension) = view.extensions.keys().next() {
            return Err(wrong(&format!("is packed by the extension {extension:?}, which is not supported")));
        }
        let in_other_file = "is in another file: a .glb file with all its buffers in it is needed";
        let own = document.buffers.first().filter(|own| view.buffer == 0 && own.uri.is_none());
        let own = own.ok_or_else(|| wrong(in_other_file))?;

        let cut_off = || wrong("goes beyond the end of the buffer");
        let buffer = usize::try_from(own.byte_length).ok().and_then(|length| buffer.get(..length));
        let view_bytes =
            buffer.and_then(|buffer| part(buffer, view.byte_offset, view.byte_length)).ok_or_else(cut_off)?;
        let size = N * component.size();
        let stride = view.byte_stride.map_or(size, |stride| stride as usize);
        if stride < size {
            return Err(wrong("overlaps itself"));
        }
        let count = usize::try_from(accessor.count).map_err(|_| cut_off())?;
        if count == 0 {
            return Err(wrong("has no values"));
        }
        // All but the last value are a stride apart; the last need not fill its own.
        let length = (count - 1).checked_mul(stride).and_then(|length| length.checked_add(size));
        let bytes = length.and_then(|length| part(view_bytes, accessor.byte_offset, length as u64));
        let bytes = bytes.ok_or_else(cut_off)?;
        Ok(Self { bytes, stride, component, normalised: accessor.normalized, count })
    }

    /// The numbers of splat `i`, which must be one of them.
    pub(super) fn row(&self, i: usize) -> [f32; N] {
        // `open` looked whether the last is in the bytes.
        let bytes = &self.bytes[i * self.stride..];
        std::array::from_fn(|k| self.component.value(&bytes[k * self.component.size()..], self.normalised))
    }
}

/// So many bytes from there on, if they are there.
fn part(bytes: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(length).ok()?)?;
    bytes.get(start..end)
}
