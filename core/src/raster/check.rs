//! What every implementation asks of what it is given. All refuse with [`ErrorKind::InvalidArgument`], and the state of
//! a training run with [`ErrorKind::InvalidFile`]: it was read from one.

use super::{LossOptions, SplatEdit, StepOptions, Target, TargetId, TrainState, View};
use crate::error::{Error, ErrorKind, Result};
use crate::splats::Splats;

/// Longest side of a picture, pixels.
const MAX_SIDE: u32 = 1 << 15;
/// More splats cannot be numbered on every device.
const MAX_SPLATS: usize = (u32::MAX / 4) as usize;

impl View {
    /// A pinhole camera with a picture that can be rendered, for a scene of degree `of_scene`.
    pub(super) fn check(&self, sh_degree: u32, of_scene: u32) -> Result<()> {
        if sh_degree > of_scene {
            return Err(Error::argument(format!(
                "spherical harmonics of degree {sh_degree} are asked for, the scene has degree {of_scene}"
            )));
        }
        let lens = [self.fx, self.fy, self.cx, self.cy].iter().all(|v| v.is_finite());
        let finite = lens && self.rotation.is_finite() && self.translation.is_finite();
        if !finite || self.fx <= 0.0 || self.fy <= 0.0 {
            return Err(Error::argument(format!("the view is no pinhole camera: {self:?}")));
        }
        if [self.width, self.height].iter().any(|side| !(1..=MAX_SIDE).contains(side)) {
            let message = format!("a picture of {}x{} cannot be rendered", self.width, self.height);
            return Err(Error::argument(message).hint(format!("both sides must be 1 to {MAX_SIDE}")));
        }
        Ok(())
    }
}

/// The scene is one that can be trained: gradients know nothing of the anti-aliasing filter.
pub(super) fn check_trainable(antialiased: bool) -> Result<()> {
    if antialiased {
        return Err(Error::argument("a scene with the anti-aliasing filter can be rendered, not trained"));
    }
    Ok(())
}

/// The background is a colour.
pub(super) fn check_background(background: [f32; 3]) -> Result<()> {
    if background.iter().all(|v| v.is_finite()) {
        return Ok(());
    }
    Err(Error::argument(format!("the background {background:?} is no colour")))
}

impl Target {
    /// The arrays of the target, the `index`th of its list, have its size.
    pub(super) fn check(&self, index: usize) -> Result<()> {
        let pixels = self.width as usize * self.height as usize;
        let alpha = self.alpha.as_ref().map(Vec::len);
        if pixels > 0 && self.rgb.len() == pixels * 3 && alpha.is_none_or(|bytes| bytes == pixels) {
            return Ok(());
        }
        Err(Error::argument(format!(
            "target {index} is {}x{} but has {} bytes of colour and {alpha:?} of alpha",
            self.width,
            self.height,
            self.rgb.len()
        )))
    }
}

/// Target `id` exists, there being `sizes` of them, and has the size of the rendering.
pub(super) fn check_target(
    id: TargetId,
    mut sizes: impl ExactSizeIterator<Item = (u32, u32)>,
    (width, height): (u32, u32),
) -> Result<()> {
    let count = sizes.len();
    match sizes.nth(id as usize) {
        None => Err(Error::argument(format!("target {id} of {count} is asked for"))),
        Some(size) if size == (width, height) => Ok(()),
        Some((w, h)) => {
            Err(Error::argument(format!("target {id} is {w}x{h}, the rendering {width}x{height}")))
        }
    }
}

impl LossOptions {
    /// The exposure is one of so many.
    pub(super) fn check(&self, exposures: usize) -> Result<()> {
        match self.exposure {
            Some(index) if index as usize >= exposures => {
                Err(Error::argument(format!("exposure {index} of {exposures} is asked for")))
            }
            _ => Ok(()),
        }
    }
}

impl StepOptions {
    /// The step has a number.
    pub(super) fn check(&self) -> Result<()> {
        if self.step > 0 { Ok(()) } else { Err(Error::argument("steps are numbered from 1")) }
    }
}

/// Length of a scene of `len` splats after the edits: no source is missing, no destination written twice, and those past
/// the end leave no gap.
pub(super) fn check_edits(edits: &[SplatEdit], len: u32) -> Result<u32> {
    let mut destinations: Vec<u32> = edits.iter().map(|e| e.destination).collect();
    destinations.sort_unstable();
    if let Some(twice) = destinations.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::argument(format!("splat {} is written by two edits", twice[0])));
    }
    let grown = destinations.iter().filter(|&&d| d >= len).count() as u32;
    if let Some(&last) = destinations.last()
        && u64::from(last) >= u64::from(len) + u64::from(grown)
    {
        return Err(Error::argument(format!(
            "an edit writes splat {last}, but {len} splats grow by {grown} only"
        )));
    }
    if let Some(e) = edits.iter().find(|e| e.shift.is_nan() || e.shift.abs() >= 1.0) {
        return Err(Error::argument(format!(
            "an edit shifts by {} standard deviations, not less than 1",
            e.shift
        )));
    }
    if let Some(e) = edits.iter().find(|e| e.source >= len) {
        return Err(Error::argument(format!("an edit reads splat {} of {len}", e.source)));
    }
    Ok(len + grown)
}

/// The splats are a scene, and no more than can be numbered.
pub(super) fn check_splats(splats: &Splats) -> Result<()> {
    splats.check()?;
    let n = splats.len();
    if n > MAX_SPLATS {
        return Err(Error::new(ErrorKind::InvalidFile, format!("{n} splats are more than can be numbered")));
    }
    Ok(())
}

impl TrainState {
    /// Its parts belong together. Moments and statistics may be missing.
    pub(super) fn check(&self) -> Result<()> {
        let damaged = |message: String| Err(Error::new(ErrorKind::InvalidFile, message));
        let (n, degree) = (self.splats.len(), self.splats.sh_degree);
        check_splats(&self.splats)?;
        for (moments, name) in [(&self.first_moments, "first"), (&self.second_moments, "second")] {
            moments.check()?;
            let (len, of) = (moments.len(), moments.sh_degree);
            if len != 0 && (len, of) != (n, degree) {
                return damaged(format!(
                    "the {name} moments are of {len} splats of degree {of}, the parameters of {n} of degree {degree}"
                ));
            }
        }
        let exposures = self.exposures.len();
        let moments = [(&self.exposure_first_moments, "first"), (&self.exposure_second_moments, "second")];
        for (len, name) in moments.map(|(moments, name)| (moments.len(), name)) {
            if len != 0 && len != exposures {
                return damaged(format!(
                    "there are {len} {name} moments of exposures for {exposures} exposures"
                ));
            }
        }
        let gathered = &self.statistics;
        let lengths =
            [gathered.gradient.len(), gathered.error.len(), gathered.visible.len(), gathered.radius.len()];
        if lengths != [0; 4] && lengths != [n; 4] {
            return damaged(format!(
                "the statistics of density control are of {lengths:?} splats, the parameters of {n}"
            ));
        }
        Ok(())
    }
}
