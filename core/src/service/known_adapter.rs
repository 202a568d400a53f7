//! The graphics adapter that a worker has found whose device is `auto`. Where it is lost, the worker waits: on the processor a job
//! would take many times as long, and nobody would know why.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::raster::DeviceChoice;

/// The driver's name of the adapter that `auto` took last, if it ever took one. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownAdapter(Arc<Mutex<Option<String>>>);

impl KnownAdapter {
    /// Looks for the adapter with `find`, which opens the one that `auto` takes now. Where there never was one, that is as good: the
    /// processor does the work.
    ///
    /// # Errors
    /// Why it cannot be opened, if there was one before.
    pub(super) fn look(&self, find: impl FnOnce() -> Result<String>) -> Result<()> {
        let error = match find() {
            Ok(name) => {
                *self.lock() = Some(name);
                return Ok(());
            }
            Err(error) => error,
        };
        let Some(name) = self.lock().clone() else { return Ok(()) };
        let message =
            format!("the graphics adapter {name} was here and cannot be used now: {}", error.message());
        Err(Error::new(error.kind(), message).hint(
            "see to its driver (`reconstruct devices` lists what is there): work goes on by itself then. To work on the processor, \
             start the worker again, or set reconstruction.device to \"cpu\"",
        ))
    }

    /// The device for a job. In place of `auto` it is the adapter that is known: a job under which that is lost ends with an error, and
    /// does not go on on the processor.
    pub(super) fn device(&self, choice: &DeviceChoice) -> DeviceChoice {
        match (choice, self.lock().clone()) {
            (DeviceChoice::Auto, Some(name)) => DeviceChoice::Adapter(name),
            _ => choice.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_adapter_that_was_lost_is_missed_and_one_that_never_was_is_not() {
        let known = KnownAdapter::default();
        let none = || Err(Error::new(ErrorKind::NoGpu, "none at all"));
        known.look(none).unwrap();
        assert_eq!(known.device(&DeviceChoice::Auto), DeviceChoice::Auto);
        known.look(|| Ok("Swift 9".to_owned())).unwrap();
        assert_eq!(known.device(&DeviceChoice::Auto), DeviceChoice::Adapter("Swift 9".to_owned()));
        for asked in [DeviceChoice::Cpu, DeviceChoice::Gpu, DeviceChoice::Adapter("another".to_owned())] {
            assert_eq!(known.device(&asked), asked);
        }
        let lost = known.look(none).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::NoGpu);
        assert!(lost.message().contains("Swift 9") && lost.message().contains("none at all"), "{lost}");
        assert!(lost.hint_text().unwrap().contains("reconstruction.device"));
        // Another one has taken its place.
        known.look(|| Ok("Swift 10".to_owned())).unwrap();
        assert_eq!(known.device(&DeviceChoice::Auto), DeviceChoice::Adapter("Swift 10".to_owned()));
    }
}
