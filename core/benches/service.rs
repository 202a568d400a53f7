//! What requests cost the service: `cargo bench -p libreconstruct --bench service [jobs]`.
//!
//! A database with that many jobs of a hundred users (and 1,000 more of one), on the disk of the temporary folder. Times are
//! those of the calls alone; a server adds its own.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::sync::Arc;
use std::time::Instant;

use libreconstruct::database::{JobRows, NewJob, SqliteDatabase, SystemClock, UploadRows, UploadedVideo};
use libreconstruct::job::{BlobName, JobId, JobRequest, JobUpdate, ListQuery, Tier, UserId, VideoExtension};
use libreconstruct::service::{Service, ServiceOptions, UploadFacts};

fn main() {
    let count = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(20_000);
    let folder = tempfile::tempdir().unwrap();
    let mut options = ServiceOptions { min_free_bytes: 0, ..ServiceOptions::default() };
    options.limits.max_queued_jobs = u64::MAX >> 1;
    let service = Service::open(folder.path(), options).unwrap();
    let database =
        SqliteDatabase::open(&folder.path().join("jobs.db"), Arc::new(SystemClock::new())).unwrap();
    let user = |k: usize| service.add_user(&format!("user {k}"), Tier::Enterprise).unwrap().user_id;
    let users: Vec<UserId> = (0..=100).map(user).collect();
    let blobs: Vec<BlobName> = users.iter().map(|user| upload(&database, *user)).collect();
    let add = |k: usize| {
        let request = JobRequest::new(blobs[k]);
        let job_id = JobId::random();
        let new = NewJob { user: users[k], job_id, request, video_version: 1, idempotency: None };
        database.insert_job(&new, service.limits()).unwrap();
        job_id
    };
    let began = Instant::now();
    for k in 0..count {
        add(k % 100);
    }
    let mine: Vec<JobId> = (0..1000).map(|_| add(100)).collect();
    let each = began.elapsed().as_secs_f64() / (count + 1000) as f64;
    println!("{} jobs, each added durably in {:.0} µs", count + 1000, each * 1e6);

    let me = users[100];
    let (_, secret) = service.create_key(me, "bench").unwrap();
    let key = secret.reveal();
    let unknown = format!("lrk_00000000.{}", "0".repeat(43));
    let per_call = |name: &str, calls: usize, work: &dyn Fn(usize)| {
        let began = Instant::now();
        (0..calls).for_each(work);
        println!("{name:<28} {:9.1} µs", began.elapsed().as_secs_f64() / calls as f64 * 1e6);
    };
    per_call("authenticate", 20_000, &|_| drop(service.authenticate(key).unwrap()));
    per_call("authenticate, unknown key", 20_000, &|_| drop(service.authenticate(&unknown).unwrap_err()));
    // Waiting jobs are counted for their position: those of nobody else are in front of a job that runs.
    per_call("job, last of the queue", 200, &|k| drop(service.job(me, mine[k % 1000]).unwrap()));
    for job in &mine {
        service.cancel(me, *job).unwrap();
    }
    per_call("job, not waiting", 20_000, &|k| drop(service.job(me, mine[k % 1000]).unwrap()));
    per_call("list of 1,000", 100, &|_| drop(service.list(me, &ListQuery::default()).unwrap()));
    let update = JobUpdate { public: Some(true), ..JobUpdate::default() };
    per_call("update, durable", 500, &|k| drop(service.update(me, mine[k], &update).unwrap()));
    per_call("upload of 1 KiB, durable", 200, &|_| {
        let name = service.create_upload(me, "mp4").unwrap().blob_name;
        let mut writer = service.begin_upload(&name, UploadFacts::default()).unwrap();
        writer.append(&[0; 1024]).unwrap();
        writer.finish().unwrap();
    });
    let name = service.create_upload(me, "mp4").unwrap().blob_name;
    let mut writer = service.begin_upload(&name, UploadFacts::default()).unwrap();
    let (block, blocks, began) = (vec![7; 1 << 20], 512, Instant::now());
    (0..blocks).for_each(|_| writer.append(&block).unwrap());
    writer.finish().unwrap();
    println!(
        "{:<28} {:9.0} MiB/s",
        "upload of 512 MiB, durable",
        f64::from(blocks) / began.elapsed().as_secs_f64()
    );
    for threads in [1, 2, 4] {
        let (began, calls) = (Instant::now(), 20_000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for k in 0..calls {
                        service.authenticate(key).unwrap();
                        service.job(me, mine[k % 1000]).unwrap();
                    }
                });
            }
        });
        let rate = (threads * calls) as f64 / began.elapsed().as_secs_f64();
        println!("{:<28} {rate:9.0} /s", format!("key and job, {threads} threads"));
    }
}

fn upload(database: &SqliteDatabase, user: UserId) -> BlobName {
    let name = BlobName::random(VideoExtension::Mp4);
    database.create_upload(user, name, 7200).unwrap();
    let video =
        UploadedVideo { version: 1, size: 1, sha256: Some([0; 32]), file_name: None, block_list: None };
    database.finish_upload(&name, &video).unwrap();
    name
}
