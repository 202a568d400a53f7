//! Which machine uses the folder. Leases, locks and the list of processes hold on one machine only: a second one, which sees
//! the same folder over a network, would take the jobs of the first for abandoned.
//!
//! The processes of the machine that uses the folder count up a number in the file `host`. Another machine sees whether the
//! number grows, which needs no clock that both share. So does a machine of the same name that runs anew: it may be another one that
//! was made from the same image.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, ErrorKind, Result};
use crate::service::layout;

/// How often the number is counted up.
pub(super) const RENEW: Duration = Duration::from_secs(3);
/// A number that has not grown for this long belongs to a machine that is gone.
const GONE: Duration = Duration::from_secs(35);
/// The same for a machine that has our name: mostly it was this one, and has taken about that long to start anew. Long enough for one
/// that waits for its database between two renewals.
const STARTED_ANEW: Duration = Duration::from_secs(10);
/// How often a newcomer looks.
const LOOK: Duration = Duration::from_millis(250);

/// A machine, as far as it can be told from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// Stays the same for as long as the system is installed; may be unknown (in containers), or that of the image of which several
    /// machines were made.
    machine: String,
    /// The run of the machine; containers on one machine have the same.
    boot: String,
}

impl Identity {
    /// This machine in this run.
    pub(super) fn of_this_machine(boot: &str) -> Self {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        Self { machine: machine.trim().to_owned(), boot: boot.to_owned() }
    }

    /// Whether its leases and locks are not ours. Of an earlier run of this machine none holds any more.
    fn is_another(&self, other: &Identity) -> bool {
        self.boot != other.boot
    }

    /// Whether it may be this machine before it was started anew.
    fn may_be_earlier(&self, other: &Identity) -> bool {
        !self.machine.is_empty() && self.machine == other.machine
    }
}

/// The mark of this machine in the folder.
pub(super) struct HostMark {
    path: PathBuf,
    own: Identity,
    /// Whether it has been written.
    marked: AtomicBool,
    lost: AtomicBool,
}

impl HostMark {
    /// Marks the folder as used by this machine; waits a little if another one did and may be gone.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] while another machine uses it.
    pub(super) fn take(folder: &Path, own: Identity) -> Result<Self> {
        Self::take_after(folder, own, GONE, STARTED_ANEW)
    }

    /// As [`HostMark::take`], with how long the number of another machine must not have grown, and that of one with our name.
    fn take_after(folder: &Path, own: Identity, gone: Duration, started_anew: Duration) -> Result<Self> {
        let (marked, lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let mark = Self { path: folder.join(layout::HOST), own, marked, lost };
        // Where a run of the machine has no name, nothing can be told apart.
        if mark.own.boot.is_empty() {
            return Ok(mark);
        }
        let before = mark.read()?;
        if let Some((other, number)) = before.filter(|(other, _)| mark.own.is_another(other)) {
            let wait = match mark.own.may_be_earlier(&other) {
                true => started_anew.saturating_sub(mark.age()),
                false => gone,
            };
            if !wait.is_zero() {
                let (folder, seconds) = (folder.display(), wait.as_secs_f64());
                log::warn!(
                    "{folder} was used by another machine, or by this one before it was started anew: looking for {seconds:.0} s \
                     whether it still is"
                );
            }
            let end = Instant::now() + wait;
            while Instant::now() < end {
                std::thread::sleep(LOOK.min(wait));
                match mark.read()? {
                    Some((now, _)) if !mark.own.is_another(&now) => break,
                    Some((now, counted)) if now != other || counted != number => {
                        return Err(Error::new(
                            ErrorKind::Conflict,
                            format!("{} is in use by another machine", folder.display()),
                        )
                        .hint(
                            "run all servers and workers of a folder on one machine, or stop those of the other one first",
                        ));
                    }
                    Some(_) => {}
                    None => break,
                }
            }
        }
        mark.renew();
        Ok(mark)
    }

    /// Counts the number up. Does nothing once another machine has taken the folder.
    pub(super) fn renew(&self) {
        if self.own.boot.is_empty() || self.lost.load(Ordering::Relaxed) {
            return;
        }
        let number = match self.read() {
            Ok(Some((other, number))) if !self.own.is_another(&other) => number + 1,
            // At first the mark of one that is gone is overwritten; later nobody else's may be there.
            Ok(Some(_)) if self.is_marked() => {
                self.lost.store(true, Ordering::Relaxed);
                log::error!(
                    "another machine has taken {}: this one stood still for too long",
                    self.path.display()
                );
                return;
            }
            Ok(_) => 1,
            Err(error) => return log::warn!("the mark of this machine: {error:?}"),
        };
        let Identity { machine, boot } = &self.own;
        if let Err(error) = self.write(&format!("{machine}\n{boot}\n{number}\n")) {
            log::warn!("the mark of this machine cannot be written: {error}");
            return;
        }
        self.marked.store(true, Ordering::Relaxed);
    }

    /// Writes over what is there, so that nobody ever finds nothing: a new file would take longer to be seen over a network.
    /// Nothing of it has to survive a power cut.
    fn write(&self, text: &str) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&self.path)?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }

    /// # Errors
    /// [`ErrorKind::Conflict`] once another machine has taken the folder: nothing that is found in it may be believed.
    pub(super) fn check(&self) -> Result<()> {
        if !self.lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, "another machine has taken the folder of the service").hint(
            "stop the server and the workers of one of the two machines, and start those of the other again",
        ))
    }

    /// Takes the mark away: the next machine need not wait. Only if no other process of this machine uses the folder.
    pub(super) fn remove(&self) {
        if self.check().is_ok() && self.is_marked() {
            let _ = fs::remove_file(&self.path);
        }
    }

    /// How long ago the number was counted up, by the clock of the disk: those of two machines may differ. In doubt it was now.
    fn age(&self) -> Duration {
        let probe = self.path.with_extension("now");
        // What a killed process has left was made then.
        let _ = fs::remove_file(&probe);
        let time_of = |path: &Path| -> io::Result<SystemTime> { fs::metadata(path)?.modified() };
        let now = fs::File::create(&probe).and_then(|_| time_of(&probe));
        let _ = fs::remove_file(&probe);
        match (now, time_of(&self.path)) {
            (Ok(now), Ok(counted)) => now.duration_since(counted).unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    fn is_marked(&self) -> bool {
        self.marked.load(Ordering::Relaxed)
    }

    /// Whose mark is there, and its number; nothing that can be read as one counts as none.
    fn read(&self) -> Result<Option<(Identity, u64)>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("read", &self.path, e)),
        };
        let mut lines = text.lines().map(str::to_owned);
        let parts = (lines.next(), lines.next(), lines.next().and_then(|n| n.parse().ok()));
        let (Some(machine), Some(boot), Some(number)) = parts else { return Ok(None) };
        Ok(Some((Identity { machine, boot }, number)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(600);

    fn identity(machine: &str, boot: &str) -> Identity {
        Identity { machine: machine.into(), boot: boot.into() }
    }

    /// As if the mark had been renewed for the last time so many seconds ago.
    fn make_older(folder: &Path, seconds: u64) {
        let file = fs::File::options().write(true).open(folder.join("host")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn a_second_machine_is_refused_while_the_first_lives() {
        let folder = tempfile::tempdir().unwrap();
        let take = |who: Identity| HostMark::take_after(folder.path(), who, SHORT, SHORT);
        let first = take(identity("a", "1")).unwrap();
        // Others of the same machine are welcome, also from a container that does not know its name.
        take(identity("a", "1")).unwrap();
        take(identity("", "1")).unwrap();
        let alive = AtomicBool::new(true);
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| {
                while alive.load(Ordering::Relaxed) {
                    first.renew();
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            // The last one was made from the same image.
            let others = [identity("b", "2"), identity("", "3"), identity("a", "4")];
            let refused = others.map(|other| take(other).err());
            alive.store(false, Ordering::Relaxed);
            refused
        });
        for refused in refused.map(Option::unwrap) {
            assert_eq!(refused.kind(), ErrorKind::Conflict);
            assert!(refused.message().contains("another machine"), "{refused}");
        }
        // It is gone without a word.
        let second = take(identity("b", "2")).unwrap();
        second.check().unwrap();
        // It was only asleep: it notices, and leaves the folder to the other.
        first.renew();
        assert_eq!(first.check().unwrap_err().kind(), ErrorKind::Conflict);
        first.remove();
        second.renew();
        second.check().unwrap();
    }

    #[test]
    fn who_was_started_anew_or_ended_in_order_keeps_nobody_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let hour = Duration::from_secs(3600);
        let take = |who: Identity| HostMark::take_after(folder.path(), who, hour, STARTED_ANEW);
        drop(take(identity("a", "1")).unwrap());
        // So long it takes at least to start a machine anew.
        make_older(folder.path(), 11);
        let again = take(identity("a", "2")).unwrap();
        again.remove();
        drop(take(identity("b", "3")).unwrap());
        fs::write(folder.path().join("host"), "half").unwrap();
        take(identity("c", "4")).unwrap();
    }

    #[test]
    fn of_two_machines_from_one_image_the_one_that_stood_still_leaves_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let take = |who: Identity| HostMark::take_after(folder.path(), who, SHORT, SHORT);
        let first = take(identity("a", "1")).unwrap();
        let began = Instant::now();
        let second = take(identity("a", "2")).unwrap();
        // The number did not grow meanwhile.
        assert!(began.elapsed() >= SHORT / 2, "{:?}", began.elapsed());
        first.renew();
        assert_eq!(first.check().unwrap_err().kind(), ErrorKind::Conflict);
        second.renew();
        second.check().unwrap();
        // Nothing is left of the look.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
