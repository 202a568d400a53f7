//! The list that ends an upload in blocks. What is read has names, and reads as the same again when it is written.

use super::super::server::block_list;

pub fn run(bytes: &[u8]) {
    let Ok(ids) = block_list(bytes) else { return };
    assert!((1..=50_000).contains(&ids.len()) && ids.iter().all(|id| !id.is_empty()));
    let blocks: String = ids.iter().map(|id| format!("<Latest>{id}</Latest>")).collect();
    let again = block_list(format!("<BlockList>{blocks}</BlockList>").as_bytes());
    assert_eq!(again.as_ref(), Ok(&ids));
}
