//! Tags to print: the pattern of a tag, and a page with it in its true size.

use std::fmt::Write;

use super::family::{FAMILY, PRINTED_MODULES, TAG_MODULES, modules};
use crate::error::{Error, Result};

/// White margin around the tag, in modules: the detector needs one.
const MARGIN: f64 = 1.5;
/// Height of the text, millimetres.
const TEXT: f64 = 3.5;

/// Tag `id` as an SVG picture to print in its true size: the inner white square has an edge of `size_mm` (1 to 1000)
/// millimetres, the whole tag 9/5 of that. Its id, its measure and a line of known length to check the printer with
/// stand below it.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] for an id above 2114 or a size out of range.
pub fn print_tag(id: u32, size_mm: f64) -> Result<String> {
    if !(1.0..=1000.0).contains(&size_mm) {
        return Err(Error::argument(format!("the size is {size_mm} mm: 1 to 1000 is allowed")));
    }
    let pattern = modules(id)?;
    let module = size_mm / TAG_MODULES as f64;
    let printed = module * PRINTED_MODULES as f64;
    let margin = MARGIN * module;
    let (left, top) = (margin, margin);
    // A ruler of whole centimetres that fits under the tag, or of whole millimetres under a small one.
    let unit = if printed >= 10.0 { 10.0 } else { 1.0 };
    let ruler = (printed / unit).floor().max(1.0) * unit;
    let width = (printed + 2.0 * margin).max(80.0);
    let ruler_y = top + printed + margin + 3.0;
    let height = ruler_y + 4.0 * TEXT + 4.0;

    let mut svg = String::new();
    let mut line = |text: String| {
        svg.push_str(&text);
        svg.push('\n');
    };
    line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.3}mm\" height=\"{height:.3}mm\" \
         viewBox=\"0 0 {width:.3} {height:.3}\">"
    ));
    line(format!("<title>{FAMILY} id {id}, inner white square {size_mm} mm</title>"));
    line(format!("<rect width=\"{width:.3}\" height=\"{height:.3}\" fill=\"#fff\"/>"));
    line("<g fill=\"#000\" shape-rendering=\"crispEdges\">".to_owned());
    for (y, row) in pattern.iter().enumerate() {
        // Black modules in a row are one rectangle, so that no seam shows between them.
        let mut x = 0;
        while x < PRINTED_MODULES {
            let run = row[x..].iter().take_while(|white| !**white).count();
            if run > 0 {
                line(format!(
                    "<rect x=\"{:.5}\" y=\"{:.5}\" width=\"{:.5}\" height=\"{module:.5}\"/>",
                    left + x as f64 * module,
                    top + y as f64 * module,
                    run as f64 * module,
                ));
            }
            x += run.max(1);
        }
    }
    line("</g>".to_owned());
    let mut path = format!("M{left:.3} {ruler_y:.3}h{ruler:.3}");
    let ticks = (ruler / unit).round() as usize;
    for tick in 0..=ticks {
        let _ = write!(path, "M{:.3} {:.3}v3", left + tick as f64 * unit, ruler_y - 1.5);
    }
    line(format!("<path d=\"{path}\" fill=\"none\" stroke=\"#000\" stroke-width=\"0.2\"/>"));
    line(format!("<g font-family=\"sans-serif\" font-size=\"{TEXT}\" fill=\"#000\">"));
    let mut below = ruler_y + 1.5;
    for text in [
        format!("this line: {ruler} mm. Print without scaling, and measure it."),
        format!("{FAMILY} id {id}"),
        format!("--apriltag-size-mm {size_mm} (inner white square; the tag is {:.2} mm wide)", printed),
    ] {
        below += 1.25 * TEXT;
        line(format!("<text x=\"{left:.3}\" y=\"{below:.3}\">{text}</text>"));
    }
    line("</g>".to_owned());
    line("</svg>".to_owned());
    Ok(svg)
}

#[cfg(test)]
#[cfg(feature = "tags")]
mod tests {
    use image::GrayImage;

    use super::*;
    use crate::fiducial::detector::Detector;
    use crate::fiducial::family::TAG_COUNT;
    use crate::fiducial::library::Family;

    /// The value of `name="…"` in a line of the picture.
    fn number(line: &str, name: &str) -> Option<f64> {
        let from = line.find(&format!(" {name}=\""))? + name.len() + 3;
        line[from..].split('"').next()?.parse().ok()
    }

    /// Draws the rectangles of the picture, `scale` pixels a millimetre.
    fn rasterise(svg: &str, scale: f64) -> GrayImage {
        let view = svg.lines().next().unwrap();
        let size: Vec<f64> = view
            .split("viewBox=\"0 0 ")
            .nth(1)
            .unwrap()
            .split(['"', ' '])
            .take(2)
            .map(|v| v.parse().unwrap())
            .collect();
        let mut picture =
            GrayImage::from_pixel((size[0] * scale) as u32, (size[1] * scale) as u32, image::Luma([255]));
        let boxes = svg.lines().filter(|l| l.starts_with("<rect x="));
        for line in boxes {
            let at = |name| (number(line, name).unwrap() * scale).round() as u32;
            let (x, y, width, height) = (at("x"), at("y"), at("width"), at("height"));
            for (dx, dy) in (0..width).flat_map(|x| (0..height).map(move |y| (x, y))) {
                picture.put_pixel(x + dx, y + dy, image::Luma([0]));
            }
        }
        picture
    }

    #[test]
    fn the_page_is_read_as_its_tag_in_its_true_size() {
        let mut detector = Detector::new().unwrap();
        for (id, size) in [(0, 100.0), (41, 20.0), (2114, 50.0)] {
            let scale = 500.0 / size;
            let svg = print_tag(id, size).unwrap();
            let found = detector.detect(&mut rasterise(&svg, scale));
            assert_eq!(found.iter().map(|f| f.id).collect::<Vec<_>>(), [id]);
            let [a, b, ..] = found[0].corners;
            let edge = (a[0] - b[0]).hypot(a[1] - b[1]) / scale;
            assert!((edge / size - 1.0).abs() < 2e-3, "{edge} mm instead of {size}");
        }
    }

    #[test]
    fn the_page_says_its_measure() {
        let svg = print_tag(5, 100.0).unwrap();
        assert!(svg.contains("--apriltag-size-mm 100 ") && svg.contains("180.00 mm wide"), "{svg}");
        // 18 centimetres with 19 ticks.
        assert!(svg.contains("this line: 180 mm") && svg.matches("v3").count() == 19, "{svg}");
        assert!(print_tag(2115, 100.0).unwrap_err().message().contains("2114"));
        for size in [0.0, f64::NAN, 1000.5] {
            assert!(print_tag(0, size).is_err());
        }
    }

    #[test]
    fn the_patterns_are_the_official_ones() {
        assert_eq!(Family::new().unwrap().count(), TAG_COUNT);
        // Tag 0 as AprilRobotics publishes it.
        let zero = "110111100000000000101111100001111101001001100001010101101111100000000000110100100";
        let text = |id: u32| -> String {
            modules(id).unwrap().as_flattened().iter().map(|&white| if white { '1' } else { '0' }).collect()
        };
        assert_eq!(text(0), zero);
        let Some(folder) = crate::prerequisites::capture("tags-41h12") else { return };
        let official = std::fs::read_to_string(folder.join("modules.txt")).unwrap();
        let lines: Vec<&str> = official.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(lines.len(), TAG_COUNT as usize);
        for (id, line) in (0..).zip(lines) {
            assert_eq!(text(id), line.trim(), "tag {id}");
        }
    }
}
