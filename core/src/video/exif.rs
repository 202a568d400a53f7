//! What a picture's EXIF data say of it: how it must be turned, its focal length, and what tells its lens from others (CIPA DC-008,
//! Exif 2.32).
//!
//! Read by hand, since libraries first make a value of every entry, and directories may lie on top of each other: 64 KB of a
//! hostile picture took 360 MB. Here only the seven numbers that are used are looked at, where they are.

use std::io::{self, Read, Seek};

use image::metadata::Orientation;

/// Diagonal of the 36 x 24 mm picture to which equivalent focal lengths refer (CIPA DCG-001), mm.
const FULL_FRAME_DIAGONAL: f64 = 43.266_615_3;
/// A focal length by the sensor is exact but for this part of it.
const EXACT: f64 = 0.0075;
/// Equivalent focal lengths are rounded to millimetres, so by half of one, ...
const ROUNDED: f64 = 0.5;
/// ... and are taken to be known to this part at worst: of short ones half a millimetre is more than lenses of one telephone differ by.
const ROUGH: f64 = 0.025;
/// Focal lengths that are believed are longer than this part of the picture's long side, ...
const SHORTEST: f64 = 0.2;
/// ... and shorter than so many of it.
const LONGEST: f64 = 20.0;
/// Long side of the picture to which equivalent focal lengths refer, mm.
const FULL_FRAME_SIDE: f64 = 36.0;
/// Sensor and equivalent that differ by more than this factor contradict each other. Pictures of other shapes than the sensor, and ways to
/// compare with 36 x 24 mm other than by the diagonal, make up to a tenth.
const CONTRADICTION: f64 = 1.25;
/// How much is read of the EXIF data: what a JPEG file can hold. Thumbnails lie behind what is used.
const MOST_BYTES: u64 = 1 << 16;
/// What stands before EXIF data in a JPEG file, and in some WebP files.
const SIGNATURE: &[u8] = b"Exif\0\0";

/// What the EXIF data of a picture, or the data by themselves, say: how it must be turned, and the focal length in pixels if it
/// has this size; for fuzzing.
pub(crate) fn exif_of(bytes: &[u8], width: u32, height: u32) -> (Orientation, Option<f64>) {
    let bare = bytes.starts_with(b"II") || bytes.starts_with(b"MM");
    let exif = if bare { Exif::of_block(bytes) } else { Exif::of(&mut io::Cursor::new(bytes)) };
    (exif.orientation, exif.focal(width, height).map(|focal| focal.pixels))
}

/// A focal length, as EXIF data name it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Focal {
    /// In pixels of the picture.
    pub(super) pixels: f64,
    /// By which part of it that may be off.
    pub(super) tolerance: f64,
}

impl Focal {
    /// The logarithms between which it lies.
    pub(super) fn range(&self) -> (f64, f64) {
        range(self.pixels, self.tolerance)
    }
}

/// What tells a lens from others of one camera where its focal length in pixels is not known, or not believed: which lens it is may
/// be told all the same.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Lens {
    /// The logarithms between which its focal length for a 36 x 24 mm picture lies, ...
    pub(super) equivalent: Option<(f64, f64)>,
    /// ... and its own. Both in mm.
    pub(super) physical: Option<(f64, f64)>,
}

/// What we use of a picture's EXIF data.
#[derive(Debug, PartialEq)]
pub(super) struct Exif {
    pub(super) orientation: Orientation,
    /// Focal length for a 36 x 24 mm picture, mm.
    equivalent: Option<f64>,
    /// Focal length of the lens itself, mm.
    physical: Option<f64>,
    /// Pixels for each mm of the sensor.
    density: Option<f64>,
    /// Long side of the picture to which the density of pixels refers.
    long_side: Option<f64>,
}

impl Exif {
    /// Reads those of a JPEG, PNG or WebP file from its beginning on; where there are none that can be read, nothing is known.
    pub(super) fn of(source: &mut (impl Read + Seek)) -> Exif {
        Self::of_block(&block_of(source).ok().flatten().unwrap_or_default())
    }

    /// Reads EXIF data as they stand in a picture.
    fn of_block(block: &[u8]) -> Exif {
        let tiff = Tiff::new(block.strip_prefix(SIGNATURE).unwrap_or(block));
        let main = tiff.as_ref().and_then(|t| t.directory(t.long(4)?));
        let of_main = |tag| main.as_ref()?.number(tag);
        let photo = tiff.as_ref().and_then(|t| t.directory(main.as_ref()?.offset(0x8769)?));
        let of_photo = |tag| photo.as_ref()?.number(tag).filter(|n| *n > 0.0);

        let orientation = of_main(0x0112).and_then(|o| Orientation::from_exif(o as u8));
        // Unit of the density: 2 inch, 3 centimetre.
        let unit = if of_photo(0xA210) == Some(3.0) { 10.0 } else { 25.4 };
        Exif {
            orientation: orientation.unwrap_or(Orientation::NoTransforms),
            equivalent: of_photo(0xA405),
            physical: of_photo(0x920A),
            density: of_photo(0xA20E).map(|d| d / unit),
            long_side: of_photo(0xA002).zip(of_photo(0xA003)).map(|(x, y)| x.max(y)),
        }
    }

    /// The focal length for a picture of this size; none where what the sensor says and what the equivalent says contradict each other.
    pub(super) fn focal(&self, width: u32, height: u32) -> Option<Focal> {
        let (width, height) = (f64::from(width), f64::from(height));
        let long = width.max(height);
        let of_sensor = self.physical.zip(self.density).map(|(focal, density)| Focal {
            pixels: focal * density * long / self.long_side.unwrap_or(long),
            tolerance: EXACT,
        });
        let of_equivalent = self.equivalent.map(|millimetres| Focal {
            pixels: millimetres / FULL_FRAME_DIAGONAL * width.hypot(height),
            tolerance: rounding(millimetres),
        });
        if let (Some(sensor), Some(equivalent)) = (of_sensor, of_equivalent)
            && (sensor.pixels / equivalent.pixels).ln().abs() > CONTRADICTION.ln()
        {
            return None;
        }
        // The density is exact where it is stored; equivalents are rounded to millimetres.
        of_sensor.or(of_equivalent).filter(|focal| (SHORTEST * long..LONGEST * long).contains(&focal.pixels))
    }

    /// The focal lengths in mm, whatever they are in pixels. That of the lens itself is taken to be known as exactly as an equivalent:
    /// some cameras round it to whole millimetres, too.
    pub(super) fn lens(&self) -> Lens {
        let believed = SHORTEST * FULL_FRAME_SIDE..LONGEST * FULL_FRAME_SIDE;
        let as_range = |millimetres: f64| range(millimetres, rounding(millimetres));
        Lens {
            equivalent: self.equivalent.filter(|focal| believed.contains(focal)).map(as_range),
            physical: self.physical.map(as_range),
        }
    }
}

/// The logarithms between which a length lies that may be off by the part `tolerance` of it.
fn range(length: f64, tolerance: f64) -> (f64, f64) {
    let middle = length.ln();
    (middle - tolerance, middle + tolerance)
}

/// By which part of it a focal length may be off that is told in millimetres.
fn rounding(millimetres: f64) -> f64 {
    (ROUNDED / millimetres).clamp(EXACT, ROUGH)
}

/// The EXIF data of a JPEG, PNG or WebP file, at most [`MOST_BYTES`] of them.
fn block_of(source: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    let start: [u8; 12] = bytes_of(source)?;
    // Back to the first segment or chunk.
    let mut go_back = |bytes: i64| source.seek_relative(-bytes);
    match start {
        [0xFF, 0xD8, ..] => {
            go_back(10)?;
            in_jpeg(source)
        }
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => {
            go_back(4)?;
            in_png(source)
        }
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P'] => in_webp(source),
        _ => Ok(None),
    }
}

/// The segment APP1 that begins with the signature. Segments: 0xFF and what it is, its length with these two bytes.
fn in_jpeg(source: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    loop {
        let [0xFF, mut marker] = bytes_of(source)? else { return Ok(None) };
        // Any number of these may come first.
        while marker == 0xFF {
            [marker] = bytes_of(source)?;
        }
        let length = u64::from(u16::from_be_bytes(bytes_of(source)?)).saturating_sub(2);
        match marker {
            0xE1 => {
                let block = up_to(source, length)?;
                if block.starts_with(SIGNATURE) {
                    return Ok(Some(block));
                }
            }
            // The picture itself, or the end.
            0xDA | 0xD9 => return Ok(None),
            _ => skip(source, length)?,
        }
    }
}

/// The chunk eXIf. Chunks: length of the data, name, data, checksum.
fn in_png(source: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    loop {
        let [a, b, c, d, name @ ..]: [u8; 8] = bytes_of(source)?;
        let length = u64::from(u32::from_be_bytes([a, b, c, d]));
        match &name {
            b"eXIf" => return up_to(source, length).map(Some),
            b"IEND" => return Ok(None),
            _ => skip(source, length + 4)?,
        }
    }
}

/// The chunk EXIF. Chunks: name, length of the data, data, filled up to an even length.
fn in_webp(source: &mut (impl Read + Seek)) -> io::Result<Option<Vec<u8>>> {
    loop {
        let [n, a, m, e, length @ ..]: [u8; 8] = bytes_of(source)?;
        let length = u64::from(u32::from_le_bytes(length));
        match &[n, a, m, e] {
            b"EXIF" => return up_to(source, length).map(Some),
            _ => skip(source, length.next_multiple_of(2))?,
        }
    }
}

fn bytes_of<const N: usize>(source: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn up_to(source: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut block = Vec::new();
    source.take(length.min(MOST_BYTES)).read_to_end(&mut block)?;
    Ok(block)
}

fn skip(source: &mut impl Seek, bytes: u64) -> io::Result<()> {
    source.seek_relative(i64::try_from(bytes).map_err(io::Error::other)?)
}

/// EXIF data are a TIFF file: numbers in an order of bytes that it says, offsets from its beginning.
struct Tiff<'a> {
    bytes: &'a [u8],
    little_endian: bool,
}

impl<'a> Tiff<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let little_endian = match bytes.get(..4)? {
            b"II*\0" => true,
            b"MM\0*" => false,
            _ => return None,
        };
        Some(Self { bytes, little_endian })
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }

    fn short(&self, at: usize) -> Option<u16> {
        let bytes = self.array(at)?;
        Some(if self.little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    fn long(&self, at: usize) -> Option<u32> {
        let bytes = self.array(at)?;
        Some(if self.little_endian { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// The directory at `offset`: the number of its entries, then 12 bytes for each.
    fn directory(&self, offset: u32) -> Option<Directory<'_>> {
        let start = usize::try_from(offset).ok()?;
        let entries = usize::from(self.short(start)?);
        Some(Directory { tiff: self, first: start + 2, entries })
    }
}

struct Directory<'a> {
    tiff: &'a Tiff<'a>,
    /// Where its first entry is.
    first: usize,
    entries: usize,
}

impl Directory<'_> {
    /// Type of the entry with this tag, and where its value is or the offset of its value.
    fn entry(&self, tag: u16) -> Option<(u16, usize)> {
        let at =
            (0..self.entries).map(|i| self.first + 12 * i).find(|at| self.tiff.short(*at) == Some(tag))?;
        // An entry of no values has none.
        let count = self.tiff.long(at + 4)?;
        (count > 0).then_some(())?;
        Some((self.tiff.short(at + 2)?, at + 8))
    }

    /// The first number of the entry with this tag; none that is not finite.
    fn number(&self, tag: u16) -> Option<f64> {
        let (kind, at) = self.entry(tag)?;
        match kind {
            1 => self.tiff.array::<1>(at).map(|[byte]| f64::from(byte)),
            3 => self.tiff.short(at).map(f64::from),
            4 => self.tiff.long(at).map(f64::from),
            5 => {
                let at = usize::try_from(self.tiff.long(at)?).ok()?;
                let quotient =
                    f64::from(self.tiff.long(at)?) / f64::from(self.tiff.long(at.checked_add(4)?)?);
                quotient.is_finite().then_some(quotient)
            }
            _ => None,
        }
    }

    /// The offset of another directory.
    fn offset(&self, tag: u16) -> Option<u32> {
        match self.entry(tag)? {
            (4, at) => self.tiff.long(at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const NONE: Exif = Exif {
        orientation: Orientation::NoTransforms,
        equivalent: None,
        physical: None,
        density: None,
        long_side: None,
    };

    #[test]
    fn the_focal_length_in_pixels_comes_from_sensor_or_equivalent() {
        let exif = Exif { equivalent: Some(26.0), ..NONE };
        let focal = exif.focal(4032, 3024).unwrap().pixels;
        assert!((focal - 26.0 / 43.2666 * 5040.0).abs() < 0.1, "{focal}");
        // 7.1 mm on a sensor with 400 pixels a mm, halved.
        let exif = Exif { physical: Some(7.1), density: Some(400.0), long_side: Some(4000.0), ..NONE };
        assert!((exif.focal(1500, 2000).unwrap().pixels - 1420.0).abs() < 1e-9);
        let exif = Exif { equivalent: Some(60_000.0), ..NONE };
        assert_eq!(exif.focal(4032, 3024), None);
    }

    #[test]
    fn a_sensor_and_an_equivalent_that_contradict_each_other_say_nothing() {
        // 2840 pixels by the sensor; by an equivalent of 24.6 mm, too.
        let of = |equivalent: Option<f64>| {
            let (physical, density) = (Some(7.1), Some(400.0));
            Exif { equivalent, physical, density, long_side: Some(4000.0), ..NONE }.focal(4000, 3000)
        };
        let exact = Some(Focal { pixels: 7.1 * 400.0, tolerance: EXACT });
        for agreeing in [None, Some(20.0), Some(25.0), Some(30.0)] {
            assert_eq!(of(agreeing), exact, "{agreeing:?}");
        }
        for other in [19.0, 32.0, 80.0] {
            assert_eq!(of(Some(other)), None, "{other}");
        }
    }

    #[test]
    fn how_exact_a_focal_length_is_depends_on_what_it_is_taken_from() {
        let of = |equivalent| Exif { equivalent: Some(equivalent), ..NONE }.focal(4000, 3000).unwrap();
        for (equivalent, tolerance) in [(13.0, ROUGH), (26.0, 0.5 / 26.0), (200.0, EXACT)] {
            assert_eq!(of(equivalent).tolerance, tolerance, "{equivalent}");
        }
        // One that lies between may be rounded to either.
        let ((low, _), (_, high)) = (of(26.0).range(), of(25.0).range());
        assert!(low < high && of(28.0).range().0 > of(26.0).range().1);
    }

    #[test]
    fn a_lens_is_known_by_its_millimetres_where_the_focal_length_in_pixels_is_not() {
        // 2099 pixels by the sensor, 5212 by the equivalent.
        let contradicting =
            Exif { physical: Some(25.6), density: Some(82.0), equivalent: Some(38.0), ..NONE };
        assert_eq!(contradicting.focal(4938, 3292), None);
        let lens = contradicting.lens();
        assert_eq!(lens.equivalent, Some(range(38.0, 0.5 / 38.0)));
        assert_eq!(lens.physical, Some(range(25.6, 0.5 / 25.6)));
        let bare = Exif { physical: Some(1.8), ..NONE };
        assert_eq!(bare.focal(4032, 3024), None);
        assert_eq!(bare.lens(), Lens { equivalent: None, physical: Some(range(1.8, ROUGH)) });
        for nothing in [NONE, Exif { equivalent: Some(60_000.0), ..NONE }] {
            assert_eq!(nothing.lens(), Lens::default());
        }
    }

    /// EXIF data: orientation 6, 7.1 mm, 4032 x 3024 pixels, 4000 pixels a centimetre, 26 mm equivalent.
    fn block(little_endian: bool) -> Vec<u8> {
        let u16 = |n: u16| if little_endian { n.to_le_bytes() } else { n.to_be_bytes() }.to_vec();
        let u32 = |n: u32| if little_endian { n.to_le_bytes() } else { n.to_be_bytes() }.to_vec();
        let short = |tag, value| [u16(tag), u16(3), u32(1), u16(value), u16(0)].concat();
        let other = |tag, kind, value| [u16(tag), u16(kind), u32(1), u32(value)].concat();
        let mut block = [if little_endian { b"II" } else { b"MM" }.to_vec(), u16(42), u32(8)].concat();
        block.extend([u16(2), short(0x0112, 6), other(0x8769, 4, 38), u32(0)].concat());
        assert_eq!(block.len(), 38);
        // Behind six entries: 38 + 2 + 6 x 12 + 4.
        block
            .extend([u16(6), other(0x920A, 5, 116), other(0xA002, 4, 4032), other(0xA003, 4, 3024)].concat());
        block.extend([other(0xA20E, 5, 124), short(0xA210, 3), short(0xA405, 26), u32(0)].concat());
        block.extend([u32(71), u32(10), u32(4000), u32(1)].concat());
        block
    }

    #[test]
    fn all_that_is_used_is_read_from_every_kind_of_file() {
        let expected = Exif {
            orientation: Orientation::Rotate90,
            equivalent: Some(26.0),
            physical: Some(7.1),
            density: Some(400.0),
            long_side: Some(4032.0),
        };
        let (of_intel, of_motorola) = (block(true), block(false));
        let length = |block: &[u8]| u16::try_from(block.len() + 8).unwrap().to_be_bytes();
        let before =
            [&[0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 1, 2, 0xFF, 0xFF, 0xFF, 0xE1, 0, 6][..], b"http"].concat();
        let jpeg = [&before, &[0xFF, 0xE1][..], &length(&of_intel), SIGNATURE, &of_intel].concat();
        let length = u32::try_from(block(false).len()).unwrap();
        let png =
            [b"\x89PNG\r\n\x1a\n\0\0\0\x02tEXtab1234", &length.to_be_bytes()[..], b"eXIf", &of_motorola];
        let webp = [b"RIFF\0\0\0\0WEBPVP8 \x03\0\0\0abc\0EXIF", &length.to_le_bytes()[..], &of_intel];
        for file in [jpeg, png.concat(), webp.concat()] {
            assert_eq!(Exif::of(&mut Cursor::new(&file)), expected);
            // Wherever a file ends, what is there is read, or nothing.
            for end in 0..file.len() {
                Exif::of(&mut Cursor::new(&file[..end]));
            }
        }
        for other in [&b"GIF89a"[..], b"", b"RIFF\0\0\0\0AVI LIST\0\0\0\0"] {
            assert_eq!(Exif::of(&mut Cursor::new(other)), NONE);
        }
    }

    #[test]
    fn what_is_no_number_is_not_known() {
        let mut zero = block(true);
        let end = zero.len();
        // Nothing over nothing, and a density of zero.
        zero[end - 12..end - 8].fill(0);
        zero[end - 8..end - 4].fill(0);
        let exif = Exif::of_block(&zero);
        assert_eq!((exif.physical, exif.density, exif.equivalent), (None, None, Some(26.0)));
        // Offsets that lead behind the end.
        let mut away = block(false);
        away[30..34].fill(0xFF);
        assert_eq!(Exif::of_block(&away), Exif { orientation: Orientation::Rotate90, ..NONE });
    }
}
