//! PLY files in general: the header, and rows of an element as numbers.

use std::io::{BufRead, BufReader, ErrorKind as Os, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::splats::source::Source;

/// No header is longer: a hundred properties take 3 kB.
const MAX_HEADER: u64 = 1 << 16;
/// Bytes of rows that are in memory at a time.
const CHUNK: usize = 1 << 20;
/// No row of text is longer: a hundred numbers with all their digits take 3 kB.
const MAX_LINE: u64 = 1 << 20;
/// Rows for which room is made where nobody knows how many will come.
const UNSURE_ROWS: usize = 1 << 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Ascii,
    LittleEndian,
    BigEndian,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scalar {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    F32,
    F64,
}

impl Scalar {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "char" | "int8" => Scalar::I8,
            "uchar" | "uint8" => Scalar::U8,
            "short" | "int16" => Scalar::I16,
            "ushort" | "uint16" => Scalar::U16,
            "int" | "int32" => Scalar::I32,
            "uint" | "uint32" => Scalar::U32,
            "float" | "float32" => Scalar::F32,
            "double" | "float64" => Scalar::F64,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Scalar::I8 | Scalar::U8 => 1,
            Scalar::I16 | Scalar::U16 => 2,
            Scalar::I32 | Scalar::U32 | Scalar::F32 => 4,
            Scalar::F64 => 8,
        }
    }

    /// The number stored in `bytes`, which has the size of the type. Every type fits into f64 exactly.
    fn decode(self, bytes: &[u8], big_endian: bool) -> f64 {
        let mut word = [0u8; 8];
        let word = &mut word[..bytes.len()];
        word.copy_from_slice(bytes);
        if big_endian {
            word.reverse();
        }
        match (self, &*word) {
            (Scalar::I8, &[a]) => f64::from(a as i8),
            (Scalar::U8, &[a]) => f64::from(a),
            (Scalar::I16, &[a, b]) => f64::from(i16::from_le_bytes([a, b])),
            (Scalar::U16, &[a, b]) => f64::from(u16::from_le_bytes([a, b])),
            (Scalar::I32, &[a, b, c, d]) => f64::from(i32::from_le_bytes([a, b, c, d])),
            (Scalar::U32, &[a, b, c, d]) => f64::from(u32::from_le_bytes([a, b, c, d])),
            (Scalar::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
            (Scalar::F64, &[a, b, c, d, e, f, g, h]) => f64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => f64::NAN, // a size that is not the type's: the callers cut exactly `size` bytes
        }
    }
}

#[derive(Debug)]
struct Property {
    name: String,
    /// `None` for a list.
    scalar: Option<Scalar>,
    /// In the binary row.
    offset: usize,
}

/// One table of the file.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    /// Number of rows. The file is long enough for them, if its size is known.
    pub(super) count: usize,
    properties: Vec<Property>,
    /// Bytes of a binary row.
    stride: usize,
}

impl Element {
    /// Number of the property of that name.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.properties.iter().position(|p| p.name == name)
    }

    /// Number of properties.
    pub(super) fn width(&self) -> usize {
        self.properties.len()
    }
}

/// A PLY file whose header has been read; its rows come in the order of its elements.
pub(super) struct PlyReader {
    path: PathBuf,
    format: Format,
    /// What follows `comment` in the header.
    pub(super) comments: Vec<String>,
    elements: std::vec::IntoIter<Element>,
    body: BufReader<Source>,
    /// Whether the file is known to be long enough for what its header promises.
    long_enough: bool,
}

impl PlyReader {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] if it is no PLY file, or known to be shorter than its header says.
    pub(super) fn new(source: Source) -> Result<Self> {
        let (path, size) = (source.path().to_owned(), source.size());
        let mut body = BufReader::with_capacity(1 << 18, source);
        let mut header = Header { path: &path, lines: (&mut body).take(MAX_HEADER), read: 0 };
        let (format, comments, elements) = header.parse()?;
        // The size may be out of date: somebody may still be writing.
        let rest = size.map(|size| size.saturating_sub(header.read));
        let elements = elements.into_iter();
        let reader = Self { path, format, comments, elements, body, long_enough: rest.is_some() };
        if let Some(rest) = rest {
            reader.check_promises(rest)?;
        }
        Ok(reader)
    }

    /// Whether the rows of all elements can be in the `rest` bytes that follow the header.
    fn check_promises(&self, mut rest: u64) -> Result<()> {
        for element in self.elements.as_slice() {
            // A value takes its size in binary, and a digit and a space in text, where the last space may be missing.
            let (row, slack) = match self.format {
                Format::Ascii => (2 * element.properties.len(), 1),
                _ => (element.stride, 0),
            };
            let needed = (row.max(1) as u64).checked_mul(element.count as u64).filter(|&n| n <= rest + slack);
            let Some(needed) = needed else {
                return Err(self.fail(format!(
                    "its header promises {} rows of element {:?}, more than the {rest} bytes that follow can hold",
                    element.count, element.name
                )));
            };
            rest = rest.saturating_sub(needed);
        }
        Ok(())
    }

    /// The number of rows of `element` for which room may be made before they have come.
    pub(super) fn room(&self, element: &Element) -> usize {
        if self.long_enough { element.count } else { element.count.min(UNSURE_ROWS) }
    }

    /// An error about this file.
    pub(super) fn fail(&self, what: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidFile, format!("{}: {what}", self.path.display()))
    }

    /// The element whose rows come next.
    pub(super) fn next_element(&mut self) -> Option<Element> {
        self.elements.next()
    }

    /// Calls `row` with the values of the `columns` of every row of `element`, in order, until it says what is wrong.
    pub(super) fn for_each_row(
        &mut self,
        element: &Element,
        columns: &[usize],
        mut row: impl FnMut(usize, &[f64]) -> Result<(), String>,
    ) -> Result<()> {
        if element.properties.is_empty() {
            return Ok(());
        }
        if let Some(list) = element.properties.iter().find(|p| p.scalar.is_none()) {
            return Err(self
                .fail(format!("property {:?} of element {:?} is a list", list.name, element.name))
                .hint("Gaussian scenes have no lists; is this a mesh?"));
        }
        let mut values = vec![0.0; columns.len()];
        match self.format {
            Format::Ascii => self.for_each_line(element, |index, words| {
                for (value, &column) in values.iter_mut().zip(columns) {
                    let word = words[column];
                    *value = word
                        .parse()
                        .map_err(|_| format!("row {index} of {:?} has {word:?}", element.name))?;
                }
                row(index, &values)
            }),
            format => {
                let places: Vec<(Scalar, std::ops::Range<usize>)> = columns
                    .iter()
                    .filter_map(|&c| {
                        let p = &element.properties[c];
                        p.scalar.map(|scalar| (scalar, p.offset..p.offset + scalar.size()))
                    })
                    .collect();
                let rows_at_a_time = (CHUNK / element.stride).clamp(1, element.count.max(1));
                let mut chunk = vec![0u8; rows_at_a_time * element.stride];
                let mut index = 0;
                while index < element.count {
                    let rows = rows_at_a_time.min(element.count - index);
                    let bytes = &mut chunk[..rows * element.stride];
                    self.body.read_exact(bytes).map_err(|e| match e.kind() {
                        Os::UnexpectedEof => self.fail(format!(
                            "it ends before the last of the {} rows of element {:?}",
                            element.count, element.name
                        )),
                        _ => Error::io("read", &self.path, e),
                    })?;
                    for bytes in bytes.chunks_exact(element.stride) {
                        for (value, (scalar, place)) in values.iter_mut().zip(&places) {
                            *value = scalar.decode(&bytes[place.clone()], format == Format::BigEndian);
                        }
                        row(index, &values).map_err(|why| self.fail(why))?;
                        index += 1;
                    }
                }
                Ok(())
            }
        }
    }

    /// Passes over the rows of `element`.
    pub(super) fn skip(&mut self, element: &Element) -> Result<()> {
        self.for_each_row(element, &[], |_, _| Ok(()))
    }

    fn for_each_line(
        &mut self,
        element: &Element,
        mut row: impl FnMut(usize, &[&str]) -> Result<(), String>,
    ) -> Result<()> {
        let mut line = Vec::new();
        for index in 0..element.count {
            line.clear();
            let read = (&mut self.body).take(MAX_LINE).read_until(b'\n', &mut line);
            let read = read.map_err(|e| Error::io("read", &self.path, e))? as u64;
            let fault = |what: String| self.fail(format!("row {index} of {:?} {what}", element.name));
            if read == MAX_LINE && line.last() != Some(&b'\n') {
                return Err(fault(format!("is longer than {MAX_LINE} bytes")));
            }
            let line = std::str::from_utf8(&line).map_err(|_| fault("is no text".to_owned()))?;
            // One word too many is enough to refuse the row.
            let words: Vec<&str> = line.split_ascii_whitespace().take(element.width() + 1).collect();
            if words.len() != element.width() {
                let found = line.split_ascii_whitespace().count();
                return Err(fault(format!("has {found} values instead of {}", element.width())));
            }
            row(index, &words).map_err(|why| self.fail(why))?;
        }
        Ok(())
    }
}

struct Header<'a, R> {
    path: &'a Path,
    lines: R,
    /// Bytes read.
    read: u64,
}

impl<R: BufRead> Header<'_, R> {
    fn fail(&self, what: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidFile, format!("{}: {what}", self.path.display()))
    }

    fn line(&mut self) -> Result<String> {
        let mut bytes = Vec::new();
        let read = self.lines.read_until(b'\n', &mut bytes).map_err(|e| Error::io("read", self.path, e))?;
        self.read += read as u64;
        if bytes.pop() != Some(b'\n') {
            return Err(self.fail("it is no PLY file, or its header has no end"));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        // Comments may be in any encoding; they are only looked at, never used as names.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn parse(&mut self) -> Result<(Format, Vec<String>, Vec<Element>)> {
        if self.line()?.trim_end() != "ply" {
            return Err(self.fail("it is no PLY file: it does not begin with \"ply\""));
        }
        let (mut format, mut comments, mut elements) = (None, Vec::new(), Vec::<Element>::new());
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["end_header"] => break,
                [] | ["obj_info", ..] => {}
                ["comment", ..] => comments.push(line.trim_start()["comment".len()..].trim().to_owned()),
                ["format", name, "1.0"] => {
                    format = Some(match name {
                        "ascii" => Format::Ascii,
                        "binary_little_endian" => Format::LittleEndian,
                        "binary_big_endian" => Format::BigEndian,
                        _ => return Err(self.fail(format!("its format {name:?} is unknown"))),
                    });
                }
                ["element", name, count] => {
                    let count: u64 = count
                        .parse()
                        .map_err(|_| self.fail(format!("element {name:?} has {count:?} rows")))?;
                    let count = usize::try_from(count).map_err(|_| self.fail("it has too many rows"))?;
                    elements.push(Element {
                        name: name.to_owned(),
                        count,
                        properties: Vec::new(),
                        stride: 0,
                    });
                }
                ["property", ref kind @ .., name] => {
                    let scalar = match kind {
                        ["list", _, _] => None,
                        [kind] => Some(Scalar::from_name(kind).ok_or_else(|| {
                            self.fail(format!("property {name:?} has the unknown type {kind:?}"))
                        })?),
                        _ => return Err(self.fail(format!("its header has the line {line:?}"))),
                    };
                    let Some(element) = elements.last_mut() else {
                        return Err(self.fail(format!("property {name:?} belongs to no element")));
                    };
                    if element.column(name).is_some() {
                        let message = format!("element {:?} has property {name:?} twice", element.name);
                        return Err(self.fail(message));
                    }
                    let offset = element.stride;
                    element.stride += scalar.map_or(0, Scalar::size);
                    element.properties.push(Property { name: name.to_owned(), scalar, offset });
                }
                _ => return Err(self.fail(format!("its header has the line {line:?}"))),
            }
        }
        let format = format.ok_or_else(|| self.fail("its header names no format"))?;
        Ok((format, comments, elements))
    }
}
