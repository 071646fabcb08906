//! Blocks of keys that cannot be read.

use hubbub_core::kv::{Condition, KvOp, KvOutcome};
use hubbub_core::store::ReadError;
use hubbub_core::{Outcome, Refusal};

use super::super::{Key, run_path};
use super::Bench;

#[test]
fn a_block_that_cannot_be_read_refuses_what_needs_it_alone() {
    let bench = Bench::new(32 * 1024);
    bench.put("a", "1", None);
    bench.seal();
    let path = run_path(bench.engine().shared.view().runs[0].number());
    bench.disk.flip(&path, 30);
    let put = |key| KvOp::Put { key, value: b"2", ttl_ms: None, condition: Condition::Always };
    let outcomes =
        bench.apply(&[put(b"a"), put(b"b"), KvOp::Delete { key: b"a", condition: Condition::Always }]);
    assert_eq!(outcomes[0], Outcome::Refused(Refusal::Unreadable));
    assert!(matches!(outcomes[1], Outcome::Kv(KvOutcome::Put { revision: 2, created: true, .. })));
    assert_eq!(outcomes[2], Outcome::Refused(Refusal::Unreadable));
    assert!(bench.engine().value(b"a").is_err());
    assert_eq!(bench.get("b").unwrap(), "2");
}

/// What cannot be listed is between the keys before and behind its block; everything else can be.
#[test]
fn a_list_goes_on_behind_a_block_that_cannot_be_read() {
    let bench = Bench::new(1 << 20);
    // Four to a block.
    let names: Vec<String> = (100..300).map(|number| format!("k{number}")).collect();
    let value = "x".repeat(1_000);
    for name in &names {
        bench.put(name, &value, None);
    }
    bench.seal();
    let whole = bench.engine().keys(b"k", None, usize::MAX).unwrap();
    assert_eq!(whole.len(), names.len());
    // In the middle of the blocks, which end long behind this.
    bench.disk.flip(&run_path(bench.engine().shared.view().runs[0].number()), 1_000);
    let (mut listed, mut limit, mut gaps) = (Vec::new(), usize::MAX, Vec::new());
    let mut after: Option<Key> = None;
    loop {
        match bench.engine().keys(b"k", after.as_deref(), limit) {
            Ok(page) if page.is_empty() => break,
            Ok(page) => {
                after = page.last().map(|info| info.key.clone());
                listed.extend(page.into_iter().map(|info| info.key));
            }
            Err(ReadError::Damaged { .. }) if limit > 1 => limit = 1,
            Err(ReadError::Damaged { resume_at: Some(behind), .. }) => {
                gaps.push((after, behind.clone()));
                listed.push(behind.clone());
                after = Some(behind);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let [(Some(from), to)] = &gaps[..] else { panic!("{gaps:?}") };
    let is_between = |name: &[u8]| &**from < name && name < &**to;
    let readable = names.iter().map(String::as_bytes).filter(|name| !is_between(name));
    assert!(listed.iter().map(|key| &**key).eq(readable), "{listed:?}");
    assert!((1..=4).contains(&(names.len() - listed.len())), "{listed:?}");
}
