//! Shows what was found: squares and ids drawn into a picture.

use std::path::Path;

use image::{Rgb, RgbImage};
use rayon::prelude::*;

use super::tags::{Tag, Tags};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::jpeg;
use crate::video::{Frames, contact_sheet, thumbnail, write_number};

const EDGE: Rgb<u8> = Rgb([255, 40, 200]);
/// The edge from the bottom left to the bottom right corner: it tells which way the tag is turned.
const FOOT: Rgb<u8> = Rgb([40, 255, 60]);

/// Draws the inner white square of every tag, its lower edge in green, and its id.
pub fn draw_tags(picture: &mut RgbImage, tags: &[Tag]) {
    // Thick enough to be seen when the picture is shown as a whole.
    let thickness = f64::from(picture.width().max(picture.height())) / 600.0;
    for tag in tags {
        for k in 0..4 {
            let colour = if k == 0 { FOOT } else { EDGE };
            line(picture, tag.corners[k], tag.corners[(k + 1) % 4], thickness.max(1.0), colour);
        }
        let middle = |axis: usize| tag.corners.iter().map(|c| c[axis]).sum::<f64>() / 4.0;
        write_number(picture, u64::from(tag.id), middle(0).max(0.0) as u32, middle(1).max(0.0) as u32);
    }
}

/// Writes a picture of every frame that shows tags, with the tags drawn, into `folder` (made if need be; the pictures
/// have the names of the frames), and the contact sheet `tags.jpg` of all frames. Returns the number of pictures.
///
/// # Errors
/// Frames that cannot be read, a folder that cannot be written, [`crate::ErrorKind::Cancelled`].
pub fn show_tags(frames: &Frames, tags: &Tags, folder: &Path, control: &Control) -> Result<usize> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, e))?;
    let show = |i: usize| {
        control.check()?;
        let (frame, seen) = (&frames.frames[i], &tags.frames[i].tags);
        let mut picture = frames.rgb(i)?;
        if !seen.is_empty() {
            draw_tags(&mut picture, seen);
            let name = Path::new(&frame.name).with_extension("jpg");
            jpeg::write(&picture, jpeg::VIEWING_QUALITY, &folder.join(name))?;
        }
        Ok((frame.index, thumbnail(picture)))
    };
    let count = frames.frames.len().min(tags.frames.len());
    let thumbnails: Vec<(u64, RgbImage)> = (0..count).into_par_iter().map(show).collect::<Result<_>>()?;
    jpeg::write(&contact_sheet(&thumbnails), jpeg::VIEWING_QUALITY, &folder.join("tags.jpg"))?;
    Ok(tags.frames.iter().filter(|f| !f.tags.is_empty()).count())
}

/// Colours all pixels whose centre is at most half of `thickness` from the segment.
fn line(picture: &mut RgbImage, a: [f64; 2], b: [f64; 2], thickness: f64, colour: Rgb<u8>) {
    let reach = 0.5 * thickness;
    let range = |axis: usize, size: u32| {
        let low = (a[axis].min(b[axis]) - reach).floor().max(0.0) as u32;
        let high = (a[axis].max(b[axis]) + reach).ceil().clamp(0.0, f64::from(size)) as u32;
        low..high
    };
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let length = (dx * dx + dy * dy).max(f64::MIN_POSITIVE);
    let (width, height) = picture.dimensions();
    for y in range(1, height) {
        for x in range(0, width) {
            let (px, py) = (f64::from(x) + 0.5 - a[0], f64::from(y) + 0.5 - a[1]);
            let along = ((px * dx + py * dy) / length).clamp(0.0, 1.0);
            if (px - along * dx).hypot(py - along * dy) <= reach {
                picture.put_pixel(x, y, colour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_square_is_drawn_where_it_is_and_nothing_beyond_the_picture() {
        let mut picture = RgbImage::new(100, 80);
        let corners = [[20.0, 60.0], [60.0, 60.0], [60.0, 20.0], [20.0, 20.0]];
        let tag = Tag { id: 3, hamming: 0, decision_margin: 50.0, edge: 40.0, corners };
        let outside = Tag { corners: corners.map(|c| [c[0] + 70.0, c[1] - 50.0]), ..tag.clone() };
        draw_tags(&mut picture, &[tag, outside]);
        assert_eq!(*picture.get_pixel(40, 59), FOOT);
        assert_eq!(*picture.get_pixel(40, 20), EDGE);
        assert_eq!(*picture.get_pixel(10, 70), Rgb([0, 0, 0]));
    }
}
