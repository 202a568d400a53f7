//! Rule 100 of docs/rest.md.

use std::time::Duration;

use super::super::ServiceOptions;
use super::super::test_world::World;
use super::*;
use crate::job::{JobRequest, Limits};
use crate::storage::BlobKind;

const MOST: u64 = 3 * BLOCK_BYTES;

/// A world in which a video has [`MOST`] bytes at most, and an upload in it.
fn world() -> (World, BlobName) {
    let limits = Limits { max_upload_bytes: MOST, ..Limits::default() };
    let world = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
    let name = world.service.create_upload(world.anna, "mp4").unwrap().blob_name;
    (world, name)
}

fn begin(w: &World, name: &BlobName, offset: u64, facts: UploadFacts) -> Result<Appending> {
    match w.service.append(name, offset, None, facts)? {
        Appended::Begun(appending) => Ok(*appending),
        Appended::Elsewhere(arrived) => panic!("not at {offset}: {arrived:?}"),
    }
}

fn send(w: &World, name: &BlobName, offset: u64, bytes: &[u8], is_last: bool) -> Result<Arrived> {
    let mut appending = begin(w, name, offset, UploadFacts::default())?;
    appending.append(bytes)?;
    appending.finish(is_last)
}

fn content(w: &World, name: &BlobName) -> Vec<u8> {
    let version = w.service.uploaded_video(w.anna, name).unwrap().version;
    let mut bytes = Vec::new();
    let key = BlobKey::Video { name: *name, version };
    w.service.open_blob(&key).unwrap().file.read_to_end(&mut bytes).unwrap();
    bytes
}

fn files(w: &World, kind: BlobKind) -> usize {
    w.service.inner.storage.list(kind, Duration::ZERO).unwrap().len()
}

fn bytes_of(count: u64) -> Vec<u8> {
    (0..count).map(|n| (n % 251) as u8).collect()
}

#[test]
fn rule_100_transfers_follow_each_other_until_the_last() {
    let (w, name) = world();
    let nothing = w.service.arrived(&name).unwrap();
    assert_eq!((nothing.bytes, nothing.length, nothing.is_complete), (0, None, false));
    let video = bytes_of(2 * BLOCK_BYTES + 5);
    // Over the end of a block, and none at all.
    let cuts = [0, 10, 10, BLOCK_BYTES as usize + 20, video.len()];
    for (number, pair) in cuts.windows(2).enumerate() {
        let is_last = number == 3;
        let arrived = send(&w, &name, pair[0] as u64, &video[pair[0]..pair[1]], is_last).unwrap();
        assert_eq!((arrived.bytes, arrived.is_complete), (pair[1] as u64, is_last));
        assert_eq!(w.service.arrived(&name).unwrap(), arrived);
        assert!(is_last == w.service.uploaded_video(w.anna, &name).is_ok());
    }
    assert_eq!(content(&w, &name), video);
    assert_eq!(files(&w, BlobKind::Block), 0);
    // Another one may take its place, from its beginning.
    assert!(matches!(
        w.service.append(&name, video.len() as u64, None, UploadFacts::default()).unwrap(),
        Appended::Elsewhere(Arrived { is_complete: true, tag: Some(_), .. })
    ));
    let mut other = w.service.append_anew(&name, Some(5), UploadFacts::default()).unwrap();
    other.append(b"other").unwrap();
    assert!(other.finish(false).unwrap().is_complete);
    assert_eq!(content(&w, &name), b"other");
    w.service.submit(w.anna, JobRequest::new(name), None).unwrap();
    assert_eq!(w.service.arrived(&name).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn rule_100_what_has_come_is_kept_when_a_transfer_is_cut_off() {
    let (w, name) = world();
    let video = bytes_of(BLOCK_BYTES + 100);
    let facts = UploadFacts { file_name: Some("Garden.mp4".to_owned()), ..UploadFacts::default() };
    let mut cut = begin(&w, &name, 0, facts).unwrap();
    cut.append(&video[..BLOCK_BYTES as usize + 50]).unwrap();
    // As a killed process does: full blocks are there.
    drop(cut);
    assert_eq!(w.service.arrived(&name).unwrap().bytes, BLOCK_BYTES);
    // As a client that goes away.
    let mut left = begin(&w, &name, BLOCK_BYTES, UploadFacts::default()).unwrap();
    left.append(&video[BLOCK_BYTES as usize..][..30]).unwrap();
    assert_eq!(left.store().unwrap(), BLOCK_BYTES + 30);
    drop(left);
    let Appended::Elsewhere(arrived) = w.service.append(&name, 7, None, UploadFacts::default()).unwrap()
    else {
        panic!("7 is not where it ends");
    };
    assert_eq!((arrived.bytes, arrived.is_complete), (BLOCK_BYTES + 30, false));
    send(&w, &name, BLOCK_BYTES + 30, &video[BLOCK_BYTES as usize + 30..], true).unwrap();
    assert_eq!(content(&w, &name), video);
    let kept = w.service.uploaded_video(w.anna, &name).unwrap();
    assert_eq!(kept.file_name.as_deref(), Some("Garden.mp4"));
    assert_eq!(w.service.inner.storage.sweep_staged(Duration::ZERO).unwrap(), 0);
}

#[test]
fn rule_100_lengths_sizes_and_hashes_are_held_to() {
    let (w, name) = world();
    let begin_with = |length, facts| match w.service.append(&name, 0, length, facts) {
        Ok(Appended::Begun(appending)) => Ok(*appending),
        Ok(Appended::Elsewhere(_)) => panic!("nothing has come"),
        Err(error) => Err(error.kind()),
    };
    assert_eq!(begin_with(Some(MOST + 1), UploadFacts::default()).err(), Some(ErrorKind::TooLarge));
    let announced = UploadFacts { size: Some(MOST + 1), ..UploadFacts::default() };
    assert_eq!(begin_with(None, announced).err(), Some(ErrorKind::TooLarge));
    let announced = UploadFacts { size: Some(11), ..UploadFacts::default() };
    assert_eq!(begin_with(Some(10), announced).err(), Some(ErrorKind::InvalidArgument));
    let mut long = begin_with(Some(10), UploadFacts::default()).unwrap();
    assert_eq!(long.append(&[0; 11]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop(long);
    assert_eq!(begin_with(Some(9), UploadFacts::default()).err(), Some(ErrorKind::InvalidArgument));
    // What was said before the first byte still holds, until it begins anew.
    assert_eq!(send(&w, &name, 0, &[0; 9], true).unwrap_err().kind(), ErrorKind::InvalidArgument);
    w.service.forget_arrived(&name).unwrap();
    assert_eq!(files(&w, BlobKind::Block), 0);
    let wrong = UploadFacts { sha256: Some([0; 32]), ..UploadFacts::default() };
    send(&w, &name, 0, b"ab", false).unwrap();
    let mut altered = begin(&w, &name, 2, wrong).unwrap();
    altered.append(&bytes_of(BLOCK_BYTES + 3)).unwrap();
    assert_eq!(altered.finish(true).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(w.service.arrived(&name).unwrap().bytes, 2);
    let right = UploadFacts {
        sha256: Some(Sha256::digest(b"c").into()),
        md5: Some(Md5::digest(b"c").into()),
        ..UploadFacts::default()
    };
    let mut last = begin(&w, &name, 2, right).unwrap();
    last.append(b"c").unwrap();
    assert!(last.finish(true).unwrap().is_complete);
    assert_eq!(content(&w, &name), b"abc");
}

#[test]
fn rule_100_a_video_of_the_largest_size_has_room_beside_what_was_announced() {
    let (w, name) = world();
    let video = bytes_of(MOST);
    let Ok(Appended::Begun(mut all)) = w.service.append(&name, 0, Some(MOST), UploadFacts::default()) else {
        panic!("it is not too large");
    };
    all.append(&video).unwrap();
    assert!(all.finish(false).unwrap().is_complete);
    assert_eq!(content(&w, &name).len() as u64, MOST);
}

#[test]
fn rule_100_one_that_has_all_its_bytes_is_put_together_when_somebody_asks() {
    let (w, name) = world();
    let Ok(Appended::Begun(mut all)) = w.service.append(&name, 0, Some(3), UploadFacts::default()) else {
        panic!("nothing has come");
    };
    all.append(b"abc").unwrap();
    all.store().unwrap();
    // Here the process is killed.
    drop(all);
    let arrived = w.service.arrived(&name).unwrap();
    assert!(arrived.is_complete && arrived.tag.is_some());
    assert_eq!(content(&w, &name), b"abc");
}

#[test]
fn rule_100_nothing_old_follows_what_is_new() {
    let (w, name) = world();
    send(&w, &name, 0, &[1; 10], false).unwrap();
    send(&w, &name, 10, &[1; 10], false).unwrap();
    // A removal that was cut off after its first step.
    w.service.inner.storage.delete(&announcement(&name)).unwrap();
    assert_eq!(w.service.arrived(&name).unwrap().bytes, 0);
    send(&w, &name, 0, &[2; 10], false).unwrap();
    assert_eq!(w.service.arrived(&name).unwrap().bytes, 10);
    assert_eq!(files(&w, BlobKind::Block), 2);
}

#[test]
fn rule_100_one_of_which_bytes_are_lost_is_not_complete() {
    let (w, name) = world();
    let mut all = w.service.append_anew(&name, Some(3), UploadFacts::default()).unwrap();
    all.append(b"abc").unwrap();
    all.store().unwrap();
    w.service.inner.storage.delete(&block_at(&name, all.announced.begun, 0)).unwrap();
    assert_eq!(all.finish(false).unwrap_err().kind(), ErrorKind::Conflict);
    let arrived = w.service.arrived(&name).unwrap();
    assert_eq!((arrived.bytes, arrived.length, arrived.is_complete), (0, Some(3), false));
    assert_eq!(files(&w, BlobKind::Video), 0);
}

/// Without a length, and with the first byte in a request of its own.
#[test]
fn rule_100_a_complete_one_is_begun_anew_before_its_first_byte_comes() {
    let (w, name) = world();
    assert!(send(&w, &name, 0, b"abc", true).unwrap().is_complete);
    let begun = w.service.append_anew(&name, None, UploadFacts::default()).unwrap();
    assert!(!begun.finish(false).unwrap().is_complete);
    let arrived = w.service.arrived(&name).unwrap();
    assert_eq!((arrived.bytes, arrived.length, arrived.is_complete), (0, None, false));
    assert!(send(&w, &name, 0, b"other", true).unwrap().is_complete);
    assert_eq!(content(&w, &name), b"other");
}

/// Servers that share their files do not see each other's transfers.
#[test]
fn rule_100_transfers_at_two_servers_do_not_mix() {
    let (w, name) = world();
    let other = w.reopen_with(ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() });
    let begin_there = |offset| match other.append(&name, offset, None, UploadFacts::default()) {
        Ok(Appended::Begun(begun)) => *begun,
        _ => panic!("it ends elsewhere"),
    };
    let mut slow = begin(&w, &name, 0, UploadFacts::default()).unwrap();
    slow.append(b"slow").unwrap();
    let mut quick = begin_there(0);
    quick.append(b"quick").unwrap();
    quick.store().unwrap();
    // What began earlier counts no more.
    assert_eq!(slow.store().unwrap_err().kind(), ErrorKind::Conflict);
    drop((slow, quick));
    // Two that go on at the same place: the first that is stored counts.
    let (mut one, mut two) = (begin(&w, &name, 5, UploadFacts::default()).unwrap(), begin_there(5));
    one.append(b"er").unwrap();
    two.append(b"est").unwrap();
    one.store().unwrap();
    assert_eq!(two.store().unwrap_err().kind(), ErrorKind::Conflict);
    assert!(one.finish(true).unwrap().is_complete);
    assert_eq!(content(&w, &name), b"quicker");
    drop(two);
    assert_eq!(files(&w, BlobKind::Block), 0);
    assert_eq!(w.service.inner.storage.sweep_staged(Duration::ZERO).unwrap(), 0);
}

/// Rule 26.
#[test]
fn rule_100_what_began_in_time_may_end_after_its_address_has_expired() {
    let (w, name) = world();
    send(&w, &name, 0, b"be", false).unwrap();
    let mut late = begin(&w, &name, 2, UploadFacts::default()).unwrap();
    late.append(b"gun").unwrap();
    w.clock.advance(121 * 60);
    late.append(b" in time").unwrap();
    let arrived = late.finish(true).unwrap();
    assert!(arrived.is_complete && arrived.tag.is_some());
    assert_eq!((arrived.bytes, content(&w, &name).as_slice()), (13, &b"begun in time"[..]));
    assert_eq!(files(&w, BlobKind::Block), 0);
    // One that ends only for now says how far it is, and is too late for more.
    let name = w.service.create_upload(w.anna, "mp4").unwrap().blob_name;
    let mut cut = begin(&w, &name, 0, UploadFacts::default()).unwrap();
    w.clock.advance(121 * 60);
    cut.append(b"cut").unwrap();
    assert_eq!(cut.finish(false).unwrap().bytes, 3);
    let refused = w.service.append(&name, 3, None, UploadFacts::default()).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
}

/// Rule 89.
#[test]
fn rule_100_space_is_promised_for_the_blocks_and_for_the_video_that_is_made_of_them() {
    let limits = Limits { max_upload_bytes: u64::MAX, ..Limits::default() };
    let w = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
    let name = w.service.create_upload(w.anna, "mp4").unwrap().blob_name;
    let free = w.service.inner.storage.free_space().unwrap().unwrap();
    let begin = |length| w.service.append(&name, 0, Some(length), UploadFacts::default());
    // There is space for it, but not twice.
    assert_eq!(begin(free / 10 * 6).err().unwrap().kind(), ErrorKind::DiskFull);
    assert_eq!(w.service.inner.space.all().bytes(|_| true), 0);
    let Ok(Appended::Begun(begun)) = begin(free / 10 * 3) else { panic!("there is space for it") };
    assert_eq!(w.service.inner.space.all().bytes(|_| true), 2 * (free / 10 * 3));
    drop(begun);
    w.service.forget_arrived(&name).unwrap();
    // What was promised is used, and nothing of it stays.
    let Ok(Appended::Begun(mut all)) = begin(10) else { panic!("there is space for it") };
    all.append(b"0123").unwrap();
    assert_eq!(w.service.inner.space.all().bytes(|_| true), 16);
    all.append(b"456789").unwrap();
    assert_eq!(w.service.inner.space.all().bytes(|_| true), 10);
    assert!(all.finish(false).unwrap().is_complete);
    assert_eq!(w.service.inner.space.all().bytes(|_| true), 0);
}

#[test]
fn rule_100_addresses_and_jobs_end_it() {
    let (w, name) = world();
    send(&w, &name, 0, b"abc", false).unwrap();
    w.clock.advance(121 * 60);
    assert_eq!(w.service.arrived(&name).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(w.service.forget_arrived(&name).unwrap_err().kind(), ErrorKind::NotFound);
    w.clock.advance(24 * 3600);
    assert_eq!(w.service.maintain().unwrap().deleted_uploads, 1);
    assert_eq!(files(&w, BlobKind::Block), 0);
}

/// Rule 89.
#[test]
fn a_byte_in_each_of_many_uploads_holds_no_space_that_is_announced_after_it() {
    let limits = Limits { max_upload_bytes: u64::MAX, ..Limits::default() };
    let w = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
    let free = w.service.inner.storage.free_space().unwrap().unwrap();
    let mut running = Vec::new();
    for _ in 0..16 {
        let name = w.service.create_upload(w.anna, "mp4").unwrap().blob_name;
        let mut first = w.service.append_anew(&name, None, UploadFacts::default()).unwrap();
        first.append(b"x").unwrap();
        assert!(!first.finish(false).unwrap().is_complete);
        match w.service.append(&name, 1, Some(free / 10 * 3), UploadFacts::default()).unwrap() {
            Appended::Begun(appending) => running.push(appending),
            Appended::Elsewhere(arrived) => panic!("not after a byte: {arrived:?}"),
        }
    }
    assert_eq!(w.service.inner.space.all().bytes(|_| true), 0);
    let of_eve = w.service.create_upload(w.eve, "mp4").unwrap().blob_name;
    let facts = UploadFacts { size: Some(free / 10 * 6), ..UploadFacts::default() };
    w.service.begin_upload(&of_eve, facts).unwrap();
    // What comes is promised a piece at a time.
    running[0].append(b"y").unwrap();
    assert!((1..64 << 20).contains(&w.service.inner.space.all().bytes(|_| true)));
}

/// Rule 89.
#[test]
fn an_upload_goes_on_whatever_else_its_user_has_begun_since() {
    let limits = Limits { max_upload_bytes: u64::MAX, ..Limits::default() };
    let w = World::with(ServiceOptions { limits, min_free_bytes: 0, ..ServiceOptions::default() });
    let [first, second] = [(); 2].map(|()| w.service.create_upload(w.anna, "mp4").unwrap().blob_name);
    let mut appending = w.service.append_anew(&first, Some(11), UploadFacts::default()).unwrap();
    appending.append(b"hello ").unwrap();
    assert!(!appending.finish(false).unwrap().is_complete);
    let free = w.service.inner.storage.free_space().unwrap().unwrap();
    let facts = UploadFacts { size: Some(free / 10 * 3), ..UploadFacts::default() };
    let _large = w.service.begin_upload(&second, facts).unwrap();
    assert!(send(&w, &first, 6, b"world", false).unwrap().is_complete);
    assert_eq!(content(&w, &first), b"hello world");
}
