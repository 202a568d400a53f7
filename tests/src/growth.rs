//! How time and memory grow with a capture, as a picture.

use std::fmt::Write;

/// What one capture took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// How many frames it has.
    pub frames: f64,
    /// Seconds of one processor.
    pub seconds: f64,
    /// Peak memory in MB; `None` where it was not measured.
    pub megabytes: Option<f64>,
}

/// Frames from, frames to, and the same of seconds and megabytes: powers of ten.
const FRAMES: (f64, f64) = (2.0, 4.0);
const COSTS: (f64, f64) = (1.0, 4.0);

/// Where something is in the picture, whose axes are logarithms.
fn place(frames: f64, cost: f64) -> (f64, f64) {
    let share = |value: f64, (from, to): (f64, f64)| (value.log10() - from) / (to - from);
    (70.0 + 520.0 * share(frames, FRAMES), 300.0 - 260.0 * share(cost, COSTS))
}

/// The curves of time and memory over the number of frames, with what would be proportional to it.
pub fn growth_picture(costs: &[Cost]) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"640\" height=\"360\" fill=\"#fff\"/>\n",
    );
    // Writing to a string cannot fail.
    for frames in [100.0, 300.0, 1000.0, 3000.0, 10_000.0] {
        let (x, _) = place(frames, 10.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} 300 V40\" stroke=\"#ddd\"/>\n<text x=\"{x:.1}\" y=\"318\" text-anchor=\"middle\">{frames}</text>"
        );
    }
    for cost in [10.0, 100.0, 1000.0, 10_000.0] {
        let (_, y) = place(100.0, cost);
        let _ = writeln!(
            svg,
            "<path d=\"M70 {y:.1} H590\" stroke=\"#ddd\"/>\n<text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{cost}</text>",
            y + 4.0
        );
    }
    svg.push_str("<text x=\"330\" y=\"346\" text-anchor=\"middle\">frames</text>\n");
    let seconds: Vec<_> = costs.iter().map(|c| (c.frames, c.seconds)).collect();
    let megabytes: Vec<_> = costs.iter().filter_map(|c| Some((c.frames, c.megabytes?))).collect();
    let linear = |&(frames, cost): &(f64, f64)| {
        // To the edge of the picture: its right one, or its upper one.
        let last = 10f64.powf(FRAMES.1).min(frames * 10f64.powf(COSTS.1) / cost);
        vec![(frames, cost), (last, cost * last / frames)]
    };
    let curves = [
        ("seconds of one processor", "#07c", "", seconds.clone()),
        ("peak memory in MB", "#c50", "", megabytes.clone()),
        ("proportional to frames", "#888", "4 4", seconds.first().map(linear).unwrap_or_default()),
        ("", "#888", "4 4", megabytes.first().map(linear).unwrap_or_default()),
    ];
    for (k, (name, colour, dashes, points)) in curves.iter().enumerate() {
        let shown: Vec<(f64, f64)> = points.iter().map(|p| place(p.0, p.1)).collect();
        let line: Vec<String> = shown.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>\n\
             <text x=\"84\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            line.join(" "),
            58 + 20 * k
        );
        for (x, y) in shown.iter().filter(|_| dashes.is_empty()) {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
        }
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_where_their_logarithms_are() {
        let cost = |frames, seconds, megabytes| Cost { frames, seconds, megabytes };
        let picture = growth_picture(&[cost(100.0, 10.0, None), cost(1000.0, 100.0, Some(1000.0))]);
        // Time grows as the frames here: its curve lies on the dashed line.
        assert!(picture.contains("<polyline points=\"70.0,300.0 330.0,213.3\""), "{picture}");
        assert!(picture.contains("<polyline points=\"70.0,300.0 590.0,126.7\""), "{picture}");
        assert!(picture.contains("<circle cx=\"330.0\" cy=\"126.7\" r=\"4\" fill=\"#c50\"/>"), "{picture}");
    }
}
