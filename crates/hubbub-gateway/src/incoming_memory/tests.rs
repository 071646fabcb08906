use super::*;

fn of(max_bytes: usize) -> (Arc<IncomingMemory>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    (IncomingMemory::new(max_bytes, metrics.clone()), metrics)
}

fn held(all: &Arc<IncomingMemory>, counted_bytes: usize) -> Share {
    let mut share = Share::new(all);
    share.set(FREE_BYTES + counted_bytes).unwrap();
    share
}

#[test]
fn shares_come_out_of_one_budget_and_go_back() {
    let (all, metrics) = of(100);
    let (mut first, mut second) = (Share::new(&all), Share::new(&all));
    assert_eq!(first.set(FREE_BYTES), Ok(()));
    assert_eq!(metrics.unfinished_bytes.get(), 0, "a little is free");
    assert_eq!(first.set(FREE_BYTES + 60), Ok(()));
    first.keep();
    assert_eq!(second.set_or_refuse(FREE_BYTES + 41), Err(Full));
    assert_eq!((metrics.unfinished_bytes.get(), metrics.unfinished_refused.get()), (60, 1));
    assert_eq!(second.set(FREE_BYTES + 40), Ok(()));
    assert_eq!(second.set(FREE_BYTES + 41), Err(Full));
    assert_eq!(second.set(FREE_BYTES + 30), Ok(()), "less is always possible");
    drop(first);
    assert_eq!(second.set(FREE_BYTES + 100), Ok(()));
    assert_eq!(second.set(usize::MAX), Err(Full));
    assert_eq!(metrics.unfinished_bytes.get(), 100);
    drop(second);
    assert_eq!(metrics.unfinished_bytes.get(), 0);
    let state = all.state.lock();
    assert!(state.growing.is_empty() && state.growing_bytes == 0 && state.given_up == 0);
}

/// A few that stop in the middle keep nobody else out.
#[test]
fn what_has_not_grown_for_longest_is_given_up() {
    let (all, metrics) = of(10 * GROWTH_BYTES);
    let mut shares: Vec<Share> = (1..=3).map(|_| held(&all, 3 * GROWTH_BYTES)).collect();
    // The first one goes on; the second one only seems to.
    shares[0].set(FREE_BYTES + 4 * GROWTH_BYTES).unwrap();
    let mut last = Share::new(&all);
    shares[1].set(FREE_BYTES + 3 * GROWTH_BYTES - 1).unwrap();
    shares[1].set(FREE_BYTES + 3 * GROWTH_BYTES).unwrap();
    assert_eq!(last.set(FREE_BYTES + GROWTH_BYTES), Ok(()));
    let given_up: Vec<bool> = shares.iter().map(Share::is_given_up).collect();
    assert_eq!(given_up, [false, true, false]);
    assert_eq!(metrics.unfinished_refused.get(), 1);
    assert_eq!(shares[1].set_or_refuse(FREE_BYTES + 4 * GROWTH_BYTES), Err(Full));
    assert_eq!(metrics.unfinished_refused.get(), 1, "it is counted once");
    let bytes = |count: usize| saturate::<_, i64>(count * GROWTH_BYTES);
    assert_eq!(metrics.unfinished_bytes.get(), bytes(11), "it is still there");
    drop(shares);
    assert_eq!(metrics.unfinished_bytes.get(), bytes(1));
    drop(last);
    let state = all.state.lock();
    assert!(state.growing.is_empty() && state.growing_bytes == 0 && state.given_up == 0 && state.bytes == 0);
}

#[test]
fn nothing_is_given_up_in_vain() {
    let (all, metrics) = of(100);
    let (growing, mut whole) = (held(&all, 20), held(&all, 70));
    whole.keep();
    let mut more = Share::new(&all);
    assert_eq!(more.set(FREE_BYTES + 31), Err(Full), "what is whole stays");
    assert!(!growing.is_given_up() && !whole.is_given_up());
    assert_eq!(more.set(FREE_BYTES + 30), Ok(()));
    assert!(growing.is_given_up() && !whole.is_given_up());
    assert_eq!(metrics.unfinished_refused.get(), 1);
}

/// Otherwise more and more would be held by tasks that do not get to run.
#[test]
fn what_was_given_up_is_bounded_until_it_is_gone() {
    let (all, _) = of(100);
    let mut shares: Vec<Share> = (0..20)
        .map_while(|_| {
            let mut share = Share::new(&all);
            share.set(FREE_BYTES + 60).ok().map(|()| share)
        })
        .collect();
    assert_eq!(shares.len(), 3);
    shares.remove(0);
    shares.push(held(&all, 60));
    assert_eq!(all.state.lock().given_up, 120);
}

#[tokio::test]
async fn a_task_hears_that_its_share_is_given_up() {
    let (all, _) = of(100);
    let mut first = held(&all, 60);
    let waiting = tokio::spawn({
        let holder = first.holder();
        async move { holder.given_up().await }
    });
    tokio::task::yield_now().await;
    let _second = held(&all, 60);
    waiting.await.unwrap();
    assert!(first.is_given_up());
}
