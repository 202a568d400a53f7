//! What a scene looks like while it is trained: small pictures for whoever waits for it.
//!
//! The trainer renders a view every few seconds in any case, to know how good it is. What is added here is to shrink one of these now
//! and then and to put it beside the row of the job. That is done by the thread that watches, so that the training does not wait for it.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use image::RgbImage;
use image::imageops::thumbnail;

use super::{Service, job_not_found};
use crate::control::Preview;
use crate::database::LivePicture;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{JobId, UserId};
use crate::jpeg;

/// How often a picture is shown at most: each is a flush of the disk, of up to [`MOST_BYTES`].
const EVERY: Duration = Duration::from_secs(10);
/// The long side of a picture in pixels at most: as wide as a card of the web application on a phone.
const SIDE: u32 = 480;
/// Bytes of a picture at most.
const MOST_BYTES: usize = 40 << 10;
/// The quality of a picture (1 to 100) and its long side, and what is tried next if it would be too large. The last does for noise.
const FORMS: [(u8, u32); 4] = [(75, SIDE), (50, SIDE), (20, SIDE), (20, SIDE / 2)];

impl Service {
    /// What the scene of a job looks like now, if the job is being trained and has been shown.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such job.
    pub fn live_picture(&self, user: UserId, job: JobId) -> Result<Option<LivePicture>> {
        let picture = self.inner.database.live_picture(user, job)?;
        if picture.is_none() && self.inner.database.job(user, job)?.is_none() {
            return Err(job_not_found());
        }
        Ok(picture)
    }
}

/// The newest picture that the trainer has shown.
#[derive(Default)]
pub(super) struct LivePictures {
    newest: Mutex<Option<Preview>>,
    taken: Mutex<Option<Instant>>,
}

impl LivePictures {
    /// Takes note of a picture. Called by the trainer, which goes on at once.
    pub(super) fn see(&self, picture: Preview) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(picture);
    }

    /// A picture that nobody was shown yet, as JPEG, if it is time for one.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] for one that has another size than it says.
    pub(super) fn take_due(&self) -> Result<Option<Vec<u8>>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.is_some_and(|when| when.elapsed() < EVERY) {
            return Ok(None);
        }
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(picture) = newest else { return Ok(None) };
        *taken = Some(Instant::now());
        small_jpeg(picture).map(Some)
    }
}

fn small_jpeg(Preview { width, height, rgb }: Preview) -> Result<Vec<u8>> {
    let picture = RgbImage::from_raw(width, height, rgb)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a picture of the training does not have its size"))?;
    let long = width.max(height);
    let mut bytes = Vec::new();
    for (quality, side) in FORMS {
        let scaled = |own: u32| (u64::from(own) * u64::from(side) / u64::from(long)).max(1) as u32;
        let small = (long > side).then(|| thumbnail(&picture, scaled(width), scaled(height)));
        bytes = jpeg::encode(small.as_ref().unwrap_or(&picture), quality)?;
        if bytes.len() <= MOST_BYTES {
            break;
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::WorkerOptions;
    use super::super::runner::{Outcome, Runner};
    use super::super::test_world::World;
    use super::super::worker::{Worked, Worker};
    use super::*;
    use crate::control::{CancelToken, Control};
    use crate::pipeline::ReconstructionOptions;
    use crate::random::Random;

    /// Shows a picture, and then trains for ever.
    struct Shows;

    impl Runner for Shows {
        fn run(&self, _: &Path, _: &Path, _: &ReconstructionOptions, control: &Control) -> Result<Outcome> {
            control.show(|| preview(64, 48, || 7));
            loop {
                control.check()?;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[test]
    fn a_worker_shows_what_it_trains_if_somebody_is_to_see_it() {
        for live_pictures in [true, false] {
            let w = World::new();
            let job = w.submit(w.anna);
            let options = WorkerOptions { threads: 1, niceness: 0, live_pictures, ..Default::default() };
            let cancel = CancelToken::new();
            let picture = |user| w.service.live_picture(user, job);
            std::thread::scope(|scope| {
                let work =
                    scope.spawn(|| Worker::new(&w.service, &options, &cancel, &Shows).unwrap().work_once());
                let begun = Instant::now();
                let wait = if live_pictures { Duration::from_secs(60) } else { Duration::from_millis(500) };
                while picture(w.anna).unwrap().is_none() && begun.elapsed() < wait {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let shown = picture(w.anna).unwrap();
                assert_eq!(shown.is_some(), live_pictures);
                if let Some(shown) = shown {
                    assert_eq!(image::load_from_memory(&shown.jpeg).unwrap().width(), 64);
                }
                assert_eq!(picture(w.eve).unwrap_err().kind(), ErrorKind::NotFound);
                w.service.cancel(w.anna, job).unwrap();
                assert_eq!(picture(w.anna).unwrap(), None);
                assert!(work.join().unwrap().unwrap() == Worked::Done);
            });
        }
    }

    fn preview(width: u32, height: u32, mut value: impl FnMut() -> u8) -> Preview {
        let rgb = (0..3 * width * height).map(|_| value()).collect();
        Preview { width, height, rgb }
    }

    #[test]
    fn pictures_are_small_whatever_they_show() {
        for (width, height, expected) in
            [(1920, 1080, (480, 270)), (1080, 1920, (270, 480)), (64, 48, (64, 48)), (4000, 1, (480, 1))]
        {
            let mut place = 0;
            let slope = || {
                place += 1;
                (place / 3 % width * 255 / width) as u8
            };
            let picture = preview(width, height, slope);
            let begun = Instant::now();
            let bytes = small_jpeg(picture).unwrap();
            println!(
                "{width}x{height}: {} bytes in {:.1} ms",
                bytes.len(),
                begun.elapsed().as_secs_f64() * 1e3
            );
            let decoded = image::load_from_memory(&bytes).unwrap();
            assert_eq!((decoded.width(), decoded.height()), expected);
            assert!(bytes.len() <= MOST_BYTES, "{} bytes of {width}x{height}", bytes.len());
        }
        // Nothing is harder than noise.
        let mut random = Random::new(1);
        let bytes = small_jpeg(preview(480, 480, || random.below(256) as u8)).unwrap();
        assert!(bytes.len() <= MOST_BYTES, "{} bytes of noise", bytes.len());
        assert!(small_jpeg(Preview { width: 2, height: 2, rgb: vec![0] }).is_err());
    }

    #[test]
    fn a_picture_is_taken_once_and_the_next_only_later() {
        let pictures = LivePictures::default();
        assert_eq!(pictures.take_due().unwrap(), None);
        pictures.see(preview(8, 8, || 1));
        pictures.see(preview(16, 8, || 2));
        let bytes = pictures.take_due().unwrap().unwrap();
        assert_eq!(image::load_from_memory(&bytes).unwrap().width(), 16);
        pictures.see(preview(8, 8, || 3));
        assert_eq!(pictures.take_due().unwrap(), None);
    }
}
