//! Memory of notices of who comes, goes and types.

use super::*;

/// Also where no message is published meanwhile.
#[test]
fn notices_are_bounded_as_messages_are() {
    const BUDGET: usize = 64 * 1024;
    let mut cluster = Cluster::bounded(2, BUDGET);
    let hubs = [0, 1].map(|node| cluster.nodes[node].hub.clone());
    let crowd = outbox(usize::MAX);
    let is_bounded = |what: &str| {
        for hub in &hubs {
            let held = hub.memory().held();
            assert!(held <= BUDGET, "{held} bytes after {what}");
        }
    };
    let name = |number: usize| format!("user-{number:04}");
    // Each reads nothing.
    let slow = || [0, 1].map(|node| outbox_of(&hubs[node], usize::MAX));
    let watch =
        |outboxes: &[Arc<Outbox>; 2]| [0, 1].map(|node| live(&hubs[node], "r", None, &outboxes[node]));
    let leave = |watching: [Attachment; 2]| hubs.iter().zip(watching).for_each(|(hub, at)| hub.detach(at));
    let step = |cluster: &mut Cluster, what| {
        for _ in 0..100 {
            cluster.step();
            is_bounded(what);
        }
    };

    // Who was heard of stays known.
    let kept = hubs[0].attach(RoomId::new("r").unwrap(), None, &crowd);
    let outboxes = slow();
    let watching = watch(&outboxes);
    let mut there = Vec::new();
    for number in 0..2_000 {
        there.push(live(&hubs[1], "r", Some(&name(number)), &crowd));
        crowds::tell(&hubs[1]);
        shown(&crowd);
        is_bounded("a join");
    }
    step(&mut cluster, "joins elsewhere");
    assert!(outboxes.iter().all(|outbox| outbox.is_cut()));
    leave(watching);

    let outboxes = slow();
    let watching = watch(&outboxes);
    for attachment in &there {
        hubs[1].typing(attachment);
        shown(&crowd);
        is_bounded("typing");
    }
    for attachment in there {
        hubs[1].detach(attachment);
        crowds::tell(&hubs[1]);
        shown(&crowd);
        is_bounded("an end");
    }
    step(&mut cluster, "ends elsewhere");
    assert!(outboxes.iter().all(|outbox| outbox.is_cut()));
    leave(watching);
    hubs[0].detach(kept);
}
