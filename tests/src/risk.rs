//! Risk against coverage: if what is least doubtful is believed first, how much of what is believed is wrong (El-Yaniv &
//! Wiener, "On the foundations of noise-free selective classification", JMLR 2010).

use std::fmt::Write;

/// A judgement, and whether what was judged was sound.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// How much it is doubted; infinite for what was refused.
    pub doubt: f64,
    /// Whether it is right.
    pub is_sound: bool,
}

/// (coverage, risk): the part of all that is believed and the part of that which is wrong, one for every limit of doubt
/// that can be told from the others. What was refused is never believed.
pub fn risk_curve(outcomes: &[Outcome]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<&Outcome> = outcomes.iter().filter(|o| o.doubt.is_finite()).collect();
    sorted.sort_by(|a, b| a.doubt.total_cmp(&b.doubt));
    let (mut believed, mut wrong) = (0usize, 0usize);
    let mut curve = Vec::new();
    for equal in sorted.chunk_by(|a, b| a.doubt == b.doubt) {
        believed += equal.len();
        wrong += equal.iter().filter(|o| !o.is_sound).count();
        curve.push((believed as f64 / outcomes.len() as f64, wrong as f64 / believed as f64));
    }
    curve
}

/// A curve to draw.
pub struct Curve<'a> {
    /// What it is called.
    pub name: &'a str,
    /// A colour of SVG.
    pub colour: &'a str,
    /// As [`risk_curve`] gives them.
    pub points: Vec<(f64, f64)>,
}

/// The curves as a picture.
pub fn risk_picture(curves: &[Curve<'_>]) -> String {
    // Pixels of the axes, and where their origin is.
    const SIZE: (f64, f64) = (520.0, 260.0);
    const ORIGIN: (f64, f64) = (70.0, 300.0);
    let highest = curves.iter().flat_map(|c| &c.points).map(|p| p.1).fold(0.05, f64::max);
    let top = (highest * 10.0).ceil() / 10.0;
    let place = |(coverage, risk): (f64, f64)| (ORIGIN.0 + SIZE.0 * coverage, ORIGIN.1 - SIZE.1 * risk / top);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 640 360\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"640\" height=\"360\" fill=\"#fff\"/>\n",
    );
    // Writing to a string cannot fail.
    for k in 0..=5 {
        let part = f64::from(k) / 5.0;
        let ((x, _), (_, y)) = (place((part, 0.0)), place((0.0, top * part)));
        let (right, high) = (ORIGIN.0 + SIZE.0, ORIGIN.1 - SIZE.1);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {} V{high} M{} {y:.1} H{right}\" stroke=\"#ddd\" fill=\"none\"/>\n\
             <text x=\"{x:.1}\" y=\"318\" text-anchor=\"middle\">{:.0} %</text>\n\
             <text x=\"62\" y=\"{:.1}\" text-anchor=\"end\">{:.0} %</text>",
            ORIGIN.1,
            ORIGIN.0,
            100.0 * part,
            y + 4.0,
            100.0 * top * part
        );
    }
    svg.push_str(
        "<text x=\"330\" y=\"346\" text-anchor=\"middle\">captures believed, least doubtful first</text>\n\
         <text x=\"18\" y=\"170\" text-anchor=\"middle\" transform=\"rotate(-90 18 170)\">of these wrong</text>\n",
    );
    let drawn = curves.iter().filter(|curve| !curve.points.is_empty());
    for (k, Curve { name, colour, points }) in drawn.enumerate() {
        let points: Vec<String> = points
            .iter()
            .map(|p| {
                let (x, y) = place(*p);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>\n\
             <text x=\"84\" y=\"{}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            58 + 20 * k
        );
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risk_grows_with_what_is_believed_wrongly() {
        let outcome = |doubt, is_sound| Outcome { doubt, is_sound };
        let outcomes =
            [outcome(0.3, true), outcome(0.1, true), outcome(0.3, false), outcome(f64::INFINITY, false)];
        assert_eq!(risk_curve(&outcomes), [(0.25, 0.0), (0.75, 1.0 / 3.0)]);
        let picture = risk_picture(&[Curve { name: "all", colour: "#07c", points: risk_curve(&outcomes) }]);
        assert!(picture.contains("<polyline points=\"200.0,300.0 460.0,"), "{picture}");
        // Of what nothing is known there is no line, and no name.
        let none = Curve { name: "none", colour: "#333", points: Vec::new() };
        assert!(!risk_picture(&[none]).contains("none\"/>\n<text x=\"84\""));
    }
}
