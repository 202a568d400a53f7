//! What a training ends with: the scene that is written, cut to the object where there are masks, and what it scores.

use super::outside::ObjectOutline;
use crate::control::Control;
use crate::error::Result;
use crate::splats::Splats;
use crate::train::{Evaluation, Trainer};

/// The scene of a finished training.
#[derive(Debug, Clone)]
pub struct FinishedScene {
    /// The scene.
    pub splats: Splats,
    /// Where it was cut to the object: the part of all opacity that was outside, and is not in the scene.
    pub opacity_removed: Option<f64>,
    /// Scores of this very scene on the held-out views, if there are any.
    pub evaluation: Option<Evaluation>,
}

impl FinishedScene {
    /// Takes the scene of a run that is finished. With an outline, what is outside of it is removed before the scene is scored.
    ///
    /// # Errors
    /// What reading the pictures and the rasteriser report; cancellation.
    pub fn of(mut trainer: Trainer, outline: Option<&ObjectOutline>, control: &Control) -> Result<Self> {
        // Asked of the data: masks may have left none of the views that were to be held out.
        let is_scored = !trainer.dataset().test.is_empty();
        let Some(outline) = outline else {
            let evaluation = if is_scored { Some(trainer.evaluate(control)?) } else { None };
            return Ok(Self { splats: trainer.splats()?, opacity_removed: None, evaluation });
        };
        let (splats, removed) = outline.cut(trainer.splats()?);
        let evaluation = if is_scored { Some(trainer.evaluate_scene(&splats, control)?) } else { None };
        Ok(Self { splats, opacity_removed: Some(removed), evaluation })
    }
}
