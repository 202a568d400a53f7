//! One picture that shows all chosen frames with their numbers, so that a look tells whether the choice is good.

use image::{Rgb, RgbImage};

use super::picture::shrink_rgb;

/// Long side of a thumbnail.
const THUMBNAIL: u32 = 144;
const GAP: u32 = 4;
const BACKGROUND: Rgb<u8> = Rgb([24, 24, 24]);

/// The digits 0 to 9, three by five, one row of three bits after the other from the top.
const DIGITS: [u16; 10] = [
    0b111_101_101_101_111,
    0b010_110_010_010_111,
    0b111_001_111_100_111,
    0b111_001_111_001_111,
    0b101_101_111_001_001,
    0b111_100_111_001_111,
    0b111_100_111_101_111,
    0b111_001_010_010_010,
    0b111_101_111_101_111,
    0b111_101_111_001_111,
];
/// Pixels for one dot of a digit.
const DOT: u32 = 2;

/// A frame as it appears on the sheet.
pub(crate) fn thumbnail(frame: RgbImage) -> RgbImage {
    shrink_rgb(frame, THUMBNAIL)
}

/// Lays out thumbnails row by row, each with its number; as good as square.
pub(crate) fn contact_sheet(thumbnails: &[(u64, RgbImage)]) -> RgbImage {
    let widest = thumbnails.iter().map(|(_, t)| t.width()).max().unwrap_or(THUMBNAIL) + GAP;
    let highest = thumbnails.iter().map(|(_, t)| t.height()).max().unwrap_or(THUMBNAIL) + GAP;
    let count = (thumbnails.len() as u32).max(1);
    let columns =
        ((f64::from(count) * f64::from(highest) / f64::from(widest)).sqrt().ceil() as u32).clamp(1, count);
    let rows = count.div_ceil(columns);
    let mut sheet = RgbImage::from_pixel(columns * widest + GAP, rows * highest + GAP, BACKGROUND);
    for (cell, (number, thumbnail)) in (0u32..).zip(thumbnails) {
        let (left, top) = (GAP + cell % columns * widest, GAP + cell / columns * highest);
        image::imageops::replace(&mut sheet, thumbnail, i64::from(left), i64::from(top));
        write_number(&mut sheet, *number, left + 2, top + 2);
    }
    sheet
}

/// White digits on black, so that they can be read on any picture.
pub(crate) fn write_number(sheet: &mut RgbImage, number: u64, left: u32, top: u32) {
    let text = number.to_string();
    let mut put = |x: u32, y: u32, colour| {
        if let Some(pixel) = sheet.get_pixel_mut_checked(x, y) {
            *pixel = colour;
        }
    };
    let (width, height) = ((text.len() as u32 * 4 + 1) * DOT, 7 * DOT);
    for y in 0..height {
        for x in 0..width {
            put(left + x, top + y, Rgb([0, 0, 0]));
        }
    }
    for (place, digit) in (0u32..).zip(text.bytes()) {
        let dots = DIGITS[usize::from(digit - b'0')]; // `to_string` of a number writes digits only
        for y in 0..5 * DOT {
            for x in 0..3 * DOT {
                if dots >> (14 - (y / DOT * 3 + x / DOT)) & 1 == 1 {
                    put(left + (place * 4 + 1) * DOT + x, top + DOT + y, Rgb([255, 255, 255]));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_has_its_place_and_number() {
        let grey = |v| thumbnail(RgbImage::from_pixel(320, 180, Rgb([v, v, v])));
        let thumbnails: Vec<(u64, RgbImage)> = (0..7).map(|i| (i * 1000, grey(100 + i as u8))).collect();
        let sheet = contact_sheet(&thumbnails);
        let shown = |v: u8| sheet.pixels().filter(|p| p.0 == [v, v, v]).count();
        for i in 0..7u8 {
            assert!(shown(100 + i) > 140 * 78 - 1000, "frame {i} is on the sheet");
        }
        assert!(shown(255) > 7 * 20, "the numbers are there");
    }

    #[test]
    fn a_single_tall_and_an_empty_sheet_are_fine() {
        let tall = vec![(1, thumbnail(RgbImage::new(1, 400)))];
        assert!(contact_sheet(&tall).height() > 140);
        assert!(contact_sheet(&[]).width() > 0);
    }
}
