//! Very many blocks of one upload: what each of them costs, and which are refused. And a list of blocks that takes its time.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use super::block_counts::HOLDS_SECONDS;
use super::blocks::MAX_BLOCKS;
use super::lists_at_work::COMES_BACK_SECONDS;
use super::place::Place;
use super::test_world::folder;
use super::{Environment, Service, ServiceOptions, UploadFacts};
use crate::control::CancelToken;
use crate::database::{Clock, ManualClock};
use crate::error::{ErrorKind, Result};
use crate::job::{BlobName, JobId, Limits, Tier, UserId};
use crate::storage::{BlobKey, BlobKind, BlobMetadata, BlobReader, LocalStorage, StagedBlob, Storage};

/// What a test has to do with a storage.
#[derive(Default)]
struct Watch {
    /// Blocks that are listed beside those that are there.
    listed: Mutex<Vec<(BlobKey, u64)>>,
    /// How often blocks were listed.
    listings: AtomicUsize,
    /// What happens before blocks are listed.
    before_listing: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// What happens before a blob is opened.
    before_open: Mutex<Option<Box<dyn FnMut() + Send>>>,
    /// What happens before one is deleted.
    before_delete: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

/// A folder that is watched.
struct Watched(LocalStorage, Arc<Watch>);

impl Storage for Watched {
    fn create(&self, key: &BlobKey) -> Result<Box<dyn StagedBlob>> {
        self.0.create(key)
    }
    fn put_file(&self, key: &BlobKey, path: &Path) -> Result<BlobMetadata> {
        self.0.put_file(key, path)
    }
    fn copy(&self, from: &BlobKey, to: &BlobKey) -> Result<BlobMetadata> {
        self.0.copy(from, to)
    }
    fn open(&self, key: &BlobKey) -> Result<BlobReader> {
        if let Some(happens) = &mut *self.1.before_open.lock().unwrap() {
            happens();
        }
        self.0.open(key)
    }
    fn metadata(&self, key: &BlobKey) -> Result<Option<BlobMetadata>> {
        self.0.metadata(key)
    }
    fn delete(&self, key: &BlobKey) -> Result<()> {
        if let Some(happens) = &mut *self.1.before_delete.lock().unwrap() {
            happens();
        }
        self.0.delete(key)
    }
    fn list(&self, kind: BlobKind, older_than: Duration) -> Result<Vec<BlobKey>> {
        self.0.list(kind, older_than)
    }
    fn list_upload(&self, name: &BlobName) -> Result<Vec<BlobKey>> {
        self.0.list_upload(name)
    }
    fn blocks(&self, name: &BlobName) -> Result<Vec<(BlobKey, u64)>> {
        self.1.listings.fetch_add(1, Ordering::Relaxed);
        if let Some(happens) = &mut *self.1.before_listing.lock().unwrap() {
            happens();
        }
        let mut blocks = self.0.blocks(name)?;
        blocks.extend_from_slice(&self.1.listed.lock().unwrap());
        Ok(blocks)
    }
    fn artifacts(&self, job: JobId) -> Result<Vec<BlobKey>> {
        self.0.artifacts(job)
    }
    fn checkpoints(&self, job: JobId) -> Result<Vec<(BlobKey, u64)>> {
        self.0.checkpoints(job)
    }
    fn service_id(&self) -> Result<Option<String>> {
        self.0.service_id()
    }
    fn note_service_id(&self, id: &str) -> Result<()> {
        self.0.note_service_id(id)
    }
    fn sweep_staged(&self, older_than: Duration) -> Result<u64> {
        self.0.sweep_staged(older_than)
    }
    fn local_path(&self, key: &BlobKey) -> Option<PathBuf> {
        self.0.local_path(key)
    }
    fn free_space(&self) -> Result<Option<u64>> {
        self.0.free_space()
    }
}

struct World {
    service: Service,
    user: UserId,
    /// An upload of the user.
    name: BlobName,
    clock: Arc<ManualClock>,
    watch: Arc<Watch>,
    folder: tempfile::TempDir,
}

fn open(folder: &Path, most: u64, clock: &Arc<ManualClock>, watch: &Arc<Watch>) -> Service {
    let limits = Limits { max_upload_bytes: most, ..Limits::default() };
    let options = ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() };
    let environment = Environment { clock: clock.clone(), look: |_, _| Ok(()) };
    let place = |folder: &Path, clock: Arc<dyn Clock>, options: &ServiceOptions| {
        let place = Place::in_folder(folder, clock, options)?;
        let storage = Box::new(Watched(LocalStorage::open(folder)?, watch.clone()));
        Ok(Place { storage, ..place })
    };
    Service::open_at(folder, None, options, environment, place).unwrap()
}

/// A world in which a video has `most` bytes at most.
fn world(most: u64) -> World {
    let (folder, clock, watch) = (folder(), Arc::new(ManualClock::new()), Arc::<Watch>::default());
    let service = open(folder.path(), most, &clock, &watch);
    let user = service.add_user("anna", Tier::Enterprise).unwrap().user_id;
    let name = service.create_upload(user, "mp4").unwrap().blob_name;
    World { service, user, name, clock, watch, folder }
}

impl World {
    /// Lists so many blocks of so many bytes each, which came before.
    fn list_others(&self, count: usize, size: u64) {
        let block = |number: usize| (BlobKey::block(self.name, &format!("other {number}")), size);
        *self.watch.listed.lock().unwrap() = (0..count).map(block).collect();
    }

    fn listings(&self) -> usize {
        self.watch.listings.load(Ordering::Relaxed)
    }

    fn put(&self, id: &str, size: usize) -> Result<String> {
        self.put_at(&self.service, id, size)
    }

    /// Sends a block to one of several servers.
    fn put_at(&self, service: &Service, id: &str, size: usize) -> Result<String> {
        let facts = UploadFacts { size: Some(size as u64), ..UploadFacts::default() };
        let mut writer = service.put_block(&self.name, id, facts)?;
        writer.append(&vec![7; size])?;
        writer.finish()
    }

    /// Whether a block is refused for its size or its number.
    fn is_too_large(&self, id: &str, size: usize) -> bool {
        self.put(id, size).is_err_and(|error| error.kind() == ErrorKind::TooLarge)
    }

    fn commit(&self, ids: &[&str], client: &CancelToken) -> Result<String> {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        self.service.commit_blocks(&self.name, &ids, UploadFacts::default(), client)
    }

    fn before_open(&self, happens: impl FnMut() + Send + 'static) {
        *self.watch.before_open.lock().unwrap() = Some(Box::new(happens));
    }

    fn before_listing(&self, happens: impl FnMut() + Send + 'static) {
        *self.watch.before_listing.lock().unwrap() = Some(Box::new(happens));
    }

    /// The content of the upload.
    fn content(&self) -> Vec<u8> {
        let version = self.service.uploaded_video(self.user, &self.name).unwrap().version;
        let mut blob = self.service.open_blob(&BlobKey::Video { name: self.name, version }).unwrap();
        let mut bytes = Vec::new();
        blob.file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn files(&self, kind: BlobKind) -> usize {
        self.service.inner.storage.list(kind, Duration::ZERO).unwrap().len()
    }
}

/// Rule 87 of docs/rest.md.
#[test]
fn a_block_that_comes_needs_no_look_at_all_others() {
    let w = world(1 << 20);
    w.list_others(5000, 2);
    for number in 0..20 {
        w.put(&number.to_string(), 1).unwrap();
    }
    // In the place of another of more bytes, and of none.
    w.put("0", 3).unwrap();
    w.put("0", 0).unwrap();
    assert_eq!(w.listings(), 1);
    assert_eq!(w.service.usage(w.user).unwrap().stored_bytes, 5000 * 2 + 19);
    w.clock.advance(HOLDS_SECONDS as i64);
    w.put("a", 1).unwrap();
    w.put("b", 1).unwrap();
    assert_eq!(w.listings(), 2);
    assert_eq!(w.service.usage(w.user).unwrap().stored_bytes, 5000 * 2 + 21);
}

/// Rule 87.
#[test]
fn the_number_of_blocks_is_bounded() {
    let w = world(1 << 20);
    w.list_others(MAX_BLOCKS - 1, 1);
    w.put("last", 1).unwrap();
    assert!(w.is_too_large("one more", 1));
    w.put("last", 2).unwrap();
    // Who is refused again and again does not have all of them looked at each time.
    assert_eq!(w.listings(), 1);
    w.clock.advance(5);
    assert!(w.is_too_large("one more", 1));
    assert_eq!(w.listings(), 2);
    // Nobody is refused for blocks that are gone.
    w.list_others(MAX_BLOCKS - 2, 1);
    w.clock.advance(5);
    w.put("one more", 1).unwrap();
    assert!(w.is_too_large("and another", 1));
}

/// Rule 87.
#[test]
fn the_bytes_of_blocks_are_bounded_where_they_are_known_and_where_they_are_looked_at() {
    let w = world(1000);
    w.list_others(9, 100);
    w.put("a", 50).unwrap();
    assert!(w.is_too_large("b", 51));
    w.put("b", 50).unwrap();
    assert!(w.is_too_large("c", 1) && w.is_too_large("b", 51));
    w.clock.advance(HOLDS_SECONDS as i64);
    assert!(w.is_too_large("c", 1) && w.is_too_large("b", 51));
    w.put("a", 50).unwrap();
    w.list_others(8, 100);
    w.clock.advance(5);
    w.put("c", 100).unwrap();
    // What is forgotten is known at once.
    w.list_others(0, 0);
    w.service.forget_arrived(&w.name).unwrap();
    w.put("d", 1000).unwrap();
}

/// Rule 87: what another server has taken is seen some seconds later, and by the list.
#[test]
fn blocks_that_come_to_several_servers_are_bounded_in_all() {
    let w = world(1000);
    let other = open(w.folder.path(), 1000, &w.clock, &w.watch);
    w.put("a", 600).unwrap();
    assert!(w.put_at(&other, "b", 401).is_err());
    w.put_at(&other, "b", 400).unwrap();
    w.put("c", 400).unwrap();
    w.clock.advance(HOLDS_SECONDS as i64);
    assert!(w.is_too_large("d", 1));
    let here = CancelToken::new();
    assert_eq!(w.commit(&["a", "b", "c"], &here).unwrap_err().kind(), ErrorKind::TooLarge);
    w.commit(&["a", "c"], &here).unwrap();
    assert_eq!(w.files(BlobKind::Block), 0);
}

/// Each adds what it takes to the row, which has also what the others have taken.
#[test]
fn what_several_servers_have_taken_counts_as_stored() {
    let w = world(1000);
    let other = open(w.folder.path(), 1000, &w.clock, &w.watch);
    w.put("a", 100).unwrap();
    w.put_at(&other, "b", 100).unwrap();
    let stored = || w.service.usage(w.user).unwrap().stored_bytes;
    w.put("c", 100).unwrap();
    assert_eq!(stored(), 300);
    w.put("c", 40).unwrap();
    assert_eq!(stored(), 240);
}

/// Rule 87.
#[test]
fn a_list_goes_on_for_a_client_that_may_come_back() {
    let w = world(1000);
    for id in ["a", "b", "c"] {
        w.put(id, 100).unwrap();
    }
    let (gone, leaves, clock) = (CancelToken::new(), CancelToken::new(), w.clock.clone());
    let mut opened = 0;
    let client = leaves.clone();
    w.before_open(move || {
        client.cancel();
        opened += 1;
        // Before the third block it has been away for too long.
        if opened == 3 {
            clock.advance(COMES_BACK_SECONDS as i64);
        }
    });
    assert_eq!(w.commit(&["a", "b", "c"], &leaves).unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!((w.files(BlobKind::Video), w.files(BlobKind::Block)), (0, 3));
    assert_eq!(w.service.inner.storage.sweep_staged(Duration::ZERO).unwrap(), 0);
    // One that ends in time is there for who comes back.
    let client = gone.clone();
    w.before_open(move || client.cancel());
    w.commit(&["a", "b"], &gone).unwrap();
    assert_eq!((w.files(BlobKind::Video), w.files(BlobKind::Block)), (1, 0));
}

/// Rule 87.
#[test]
fn the_same_list_again_waits_for_the_first_and_is_answered_as_that() {
    let w = world(1000);
    w.put("a", 100).unwrap();
    let ((begun, has_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let mut once = Some((begun, may_go));
    w.before_open(move || {
        if let Some((begun, may_go)) = once.take() {
            begun.send(()).unwrap();
            may_go.recv().unwrap();
        }
    });
    let (first, second) = (CancelToken::new(), CancelToken::new());
    thread::scope(|scope| {
        let lost = scope.spawn(|| w.commit(&["a"], &first));
        has_begun.recv().unwrap();
        first.cancel();
        assert_eq!(w.commit(&["b"], &second).unwrap_err().kind(), ErrorKind::Conflict);
        let again = scope.spawn(|| w.commit(&["a"], &second));
        go.send(()).unwrap();
        let tag = lost.join().unwrap().unwrap();
        assert_eq!(again.join().unwrap().unwrap(), tag);
    });
    assert_eq!((w.files(BlobKind::Video), w.files(BlobKind::Block)), (1, 0));
}

/// Rule 87: the client has asked another server before, which is at the same list.
#[test]
fn the_same_list_at_two_servers_is_answered_at_both() {
    let w = world(1000);
    w.put("a", 100).unwrap();
    let other = open(w.folder.path(), 1000, &w.clock, &Arc::default());
    let (name, mut once) = (w.name, Some(other));
    let there = Arc::<Mutex<Option<String>>>::default();
    let tag = there.clone();
    w.before_open(move || {
        if let Some(other) = once.take() {
            let ids = ["a".to_owned()];
            let made = other.commit_blocks(&name, &ids, UploadFacts::default(), &CancelToken::new());
            *tag.lock().unwrap() = Some(made.unwrap());
        }
    });
    let here = w.commit(&["a"], &CancelToken::new()).unwrap();
    assert_eq!(there.lock().unwrap().as_deref(), Some(here.as_str()));
    assert_eq!(w.files(BlobKind::Video), 1);
}

/// Rule 87: the client has asked another server before, which has put the blocks together and still removes them.
#[test]
fn the_same_list_at_a_second_server_may_come_again_while_the_first_removes_the_blocks() {
    let w = world(1000);
    w.put("a", 100).unwrap();
    w.put("b", 100).unwrap();
    let other = open(w.folder.path(), 1000, &w.clock, &Arc::default());
    let (name, ids) = (w.name, ["a".to_owned(), "b".to_owned()]);
    let there = other.clone();
    let at_other = move || other.commit_blocks(&name, &ids, UploadFacts::default(), &CancelToken::new());
    let answers = Arc::<Mutex<Vec<Result<String>>>>::default();
    let (given, ask) = (answers.clone(), at_other.clone());
    *w.watch.before_delete.lock().unwrap() = Some(Box::new(move || {
        // The first of the two is gone.
        if there.inner.storage.blocks(&name).unwrap().len() == 1 {
            given.lock().unwrap().push(ask());
        }
    }));
    let tag = w.commit(&["a", "b"], &CancelToken::new()).unwrap();
    *w.watch.before_delete.lock().unwrap() = None;
    let answer = answers.lock().unwrap().pop().unwrap();
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(at_other().unwrap(), tag);
    // What is sent anew is another attempt.
    thread::sleep(Duration::from_millis(20));
    w.put("a", 50).unwrap();
    assert_eq!(at_other().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Calls `happens` at the call of this number, the first being 1.
fn at_call(number: usize, happens: impl FnOnce() + Send + 'static) -> impl FnMut() + Send + 'static {
    let (mut calls, mut once) = (0, Some(happens));
    move || {
        calls += 1;
        if calls == number
            && let Some(happens) = once.take()
        {
            happens();
        }
    }
}

/// Stores all bytes of a resumable upload, and is cut off before they are put together.
fn store_all(service: &Service, name: &BlobName) {
    let mut all = service.append_anew(name, Some(3), UploadFacts::default()).unwrap();
    all.append(b"abc").unwrap();
    all.store().unwrap();
}

/// Rule 100: a proxy has cut the client off, and it asks another server.
#[test]
fn a_resumable_upload_that_two_servers_put_together_is_whole_at_both() {
    // Before the bytes are listed for the first and for the second time, and before they are read, after what was announced.
    for (call, is_before_listing) in [(1, true), (2, true), (2, false)] {
        let w = world(1000);
        store_all(&w.service, &w.name);
        let (other, name) = (open(w.folder.path(), 1000, &w.clock, &Arc::default()), w.name);
        let happens = at_call(call, move || assert!(other.arrived(&name).unwrap().is_complete));
        match is_before_listing {
            true => w.before_listing(happens),
            false => w.before_open(happens),
        }
        let arrived = w.service.arrived(&w.name).unwrap();
        assert!(arrived.is_complete && arrived.tag.is_some(), "{arrived:?}");
        *w.watch.before_listing.lock().unwrap() = None;
        *w.watch.before_open.lock().unwrap() = None;
        assert_eq!(w.content(), b"abc");
        assert_eq!((w.files(BlobKind::Video), w.files(BlobKind::Block)), (1, 0));
    }
}

/// Rule 100: this one stood still, and the client has gone to another server meanwhile.
#[test]
fn who_begins_an_upload_anew_leaves_what_was_begun_elsewhere_since() {
    let w = world(1000);
    let (other, name) = (open(w.folder.path(), 1000, &w.clock, &Arc::default()), w.name);
    let there = other.clone();
    w.before_listing(at_call(2, move || store_all(&there, &name)));
    let refused = w.service.append_anew(&w.name, Some(3), UploadFacts::default()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    *w.watch.before_listing.lock().unwrap() = None;
    assert!(other.arrived(&name).unwrap().is_complete);
    assert_eq!(w.content(), b"abc");
}

/// Rule 87: the first server has just put the blocks together, and begins to remove them when the second has seen all of them.
#[test]
fn the_same_list_at_a_second_server_may_come_again_though_its_blocks_vanish_while_it_copies_them() {
    let w = world(1000);
    w.put("a", 100).unwrap();
    w.put("b", 100).unwrap();
    let theirs = Arc::<Watch>::default();
    let other = open(w.folder.path(), 1000, &w.clock, &theirs);
    let third = open(w.folder.path(), 1000, &w.clock, &Arc::default());
    let (name, here, ids) = (w.name, w.service.clone(), ["a".to_owned(), "b".to_owned()]);
    let (first, _) = third.inner.storage.blocks(&name).unwrap()[0];
    w.before_open(at_call(1, move || third.inner.storage.delete(&first).unwrap()));
    let answer = Arc::<Mutex<Option<Result<String>>>>::default();
    let (given, list) = (answer.clone(), ids.clone());
    *theirs.before_delete.lock().unwrap() = Some(Box::new(at_call(1, move || {
        let made = here.commit_blocks(&name, &list, UploadFacts::default(), &CancelToken::new());
        *given.lock().unwrap() = Some(made);
    })));
    let tag = other.commit_blocks(&name, &ids, UploadFacts::default(), &CancelToken::new()).unwrap();
    let answer = answer.lock().unwrap().take().unwrap();
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(w.commit(&["a", "b"], &CancelToken::new()).unwrap(), tag);
    assert_eq!((w.files(BlobKind::Video), w.files(BlobKind::Block)), (1, 0));
}
