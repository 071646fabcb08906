use super::path::{BOTH_WAYS, TO_SERVER, UNACCOUNTED, WHOLE};
use super::*;

/// Metrics of a server; each histogram has its sum in seconds and its count.
fn metrics(histograms: &[(&str, f64, u32)]) -> String {
    let one = |(name, sum, count): &(&str, f64, u32)| {
        format!("hubbub_{name}_seconds_bucket{{le=\"+Inf\"}} {count}\nhubbub_{name}_seconds_sum {sum}\n")
    };
    histograms.iter().map(one).collect()
}

fn shown(way: &StagePath) -> Vec<(&str, f64)> {
    way.rows().map(|(name, ms, _)| (name, (ms * 1e6).round() / 1e6)).collect()
}

const DIRECT: [(&str, f64, u32); 5] = [
    ("pipeline_wait", 0.2, 100),
    ("pipeline_answer", 0.01, 100),
    ("pipeline_total", 0.6, 100),
    ("pipeline_fan_out", 0.004, 2),
    ("delivery", 0.003, 3),
];

/// A hundred messages, 7 ms until the answer, 10 ms until subscribers had them.
fn known() -> Generated {
    Generated {
        ended: 100.0,
        ended_off: 0.0,
        confirmed_ms: 7.0,
        delivered_ms: Some(10.0),
        has_several_servers: false,
        asked: (0.0, 0.0),
        waited_ms: 0.5,
        is_delivery_intended: true,
        empty_ms: Some(0.3),
        followed: None,
        followed_to_subscribers: None,
        is_one_clock: true,
    }
}

#[test]
fn stages_and_what_is_left_are_the_whole() {
    let before = metrics(&DIRECT.map(|(name, _, _)| (name, 5.0, 50)));
    let after = metrics(&DIRECT.map(|(name, sum, count)| (name, sum + 5.0, count + 50)));
    let stages = Stages::of(&ServerStages::between(&before, &after), &known());
    let confirmed = stages.confirmed.as_ref().unwrap();
    let wanted = [("client", 0.5), ("queue", 2.0), ("commit", 3.9), ("answer", 0.1), ("network", 0.3)];
    assert_eq!(shown(confirmed), [&wanted[..], &[(UNACCOUNTED, 0.2), (WHOLE, 7.0)]].concat());
    let delivered = stages.delivered.as_ref().unwrap();
    let wanted = [("client", 0.5), ("queue", 2.0), ("commit", 3.9), ("delivery", 3.0), ("network", 0.3)];
    assert_eq!(shown(delivered), [&wanted[..], &[(UNACCOUNTED, 0.3), (WHOLE, 10.0)]].concat());
    for (_, way) in stages.ways() {
        let shares: f64 = way.rows().map(|(_, _, share)| share).sum();
        assert!((shares - 2.0).abs() < 1e-9 && way.mark().is_none(), "all of it, and the whole: {way:?}");
    }
    let json = serde_json::to_value(&stages).unwrap();
    assert_eq!(serde_json::from_value::<Stages>(json).unwrap(), stages);
    let said = confirmed.to_string();
    assert!(
        said.starts_with("client 0.500 (7 %), queue 2.000 (29 %), ") && said.ends_with("2.9 %"),
        "{said}"
    );
    assert!(confirmed.table().markdown().contains("| commit | 3.900 | 55.7 % |"));
    let both = [("a".to_owned(), confirmed.clone()), ("b".to_owned(), delivered.clone())];
    let table = table(&both).csv();
    assert!(table.starts_with("ms,client,queue,commit,answer,network,not accounted for,whole,delivery\n"));
    assert!(table.ends_with("\nb,0.500,2.000,3.900,,0.300,0.300,10.000,3.000\n"), "{table}");
}

#[test]
fn what_was_followed_leaves_nothing_out() {
    let server = ServerStages::between("", &metrics(&DIRECT));
    let means = Means { count: 300, steps: [0.7, 3.0, 1.0, 0.0, 0.5, 1.0], rest: 5.5, error: Some(0.4) };
    let way = |followed: Means, is_one_clock| {
        let known = Generated {
            confirmed_ms: 6.55,
            delivered_ms: Some(6.0),
            followed: Some(followed),
            followed_to_subscribers: Some(followed),
            is_one_clock,
            ..known()
        };
        Stages::of(&server, &known)
    };
    let stages = way(means, true);
    let confirmed = stages.confirmed.as_ref().unwrap();
    let wanted = [
        ("client", 0.5),
        (TO_SERVER, 1.3),
        ("queue", 2.0),
        ("commit", 1.1),
        ("answer", 0.55),
        ("to the client", 1.1),
        (UNACCOUNTED, 0.0),
        (WHOLE, 6.55),
    ];
    assert_eq!(shown(confirmed), wanted);
    assert!(
        confirmed.mark().is_none() && confirmed.to_string().ends_with("; by 300 messages that were followed")
    );
    let wanted =
        [(TO_SERVER, 1.0), ("queue", 2.0), ("commit", 1.0), ("delivery", 0.5), ("to subscribers", 1.0)];
    assert_eq!(shown(stages.delivered.as_ref().unwrap())[1..6], wanted);
    assert_eq!(confirmed.followed_ms, Some(6.0), "not in proportion to the whole");
    // Those followed were faster than all, and that was not chance.
    let others = way(Means { error: Some(0.1), ..means }, true).confirmed.unwrap();
    assert_eq!(others.mark().as_deref(), Some("8 % not accounted for"));
    let unknown = way(Means { error: None, ..means }, true).confirmed.unwrap();
    assert!(unknown.mark().is_none(), "nobody knows what chance would explain: {unknown}");
    // However long messages waited before they were sent.
    let behind = Generated {
        confirmed_ms: 30_010.0,
        waited_ms: 30_000.0,
        followed: Some(Means {
            steps: [29_000.0, 2.5, 1.0, 0.0, 0.5, 1.0],
            rest: 5.0,
            error: Some(0.1),
            ..means
        }),
        ..known()
    };
    let behind = Stages::of(&server, &behind).confirmed.unwrap();
    let rows = shown(&behind);
    assert_eq!((rows[0], rows[6].0), (("client", 30_000.0), UNACCOUNTED));
    assert!((rows[6].1 - 5.0).abs() < 1e-3, "half of the rest: {rows:?}");
    // Of two clocks nobody knows which way was longer, and so not how much of one was the queue.
    let apart = way(Means { steps: [0.5, 1.5, 1.0, 0.0, 0.5, 2.5], ..means }, false);
    assert_eq!(shown(apart.confirmed.as_ref().unwrap())[4], ("both ways", 2.4));
    assert_eq!(shown(apart.delivered.as_ref().unwrap())[4], ("both ways", 2.0));
}

/// Twelve milliseconds until subscribers of another server had a message: five in the broker, two on the bus.
#[test]
fn on_several_servers_only_followed_messages_tell_how_long_the_bus_took() {
    let log_end_to_end = ("log_end_to_end", 1.1, 100);
    let server = ServerStages::between("", &metrics(&[&DIRECT[..], &[log_end_to_end]].concat()));
    let several = Generated { delivered_ms: Some(12.5), has_several_servers: true, ..known() };
    assert_eq!(Stages::of(&server, &several).delivered, None);
    let steps = [0.5, 7.5, 1.0, 2.0, 0.5, 1.0];
    let followed = Means { count: 300, steps, rest: 12.0, error: Some(0.1) };
    let with = Generated { followed_to_subscribers: Some(followed), ..several };
    let stages = Stages::of(&server, &with);
    let wanted = [
        ("client", 0.5),
        (TO_SERVER, 0.5),
        ("log", 5.0),
        ("queue", 2.0),
        ("commit", 1.0),
        ("bus", 2.0),
        ("delivery", 0.5),
        ("to subscribers", 1.0),
        (UNACCOUNTED, 0.0),
        (WHOLE, 12.5),
    ];
    let delivered = stages.delivered.as_ref().unwrap();
    assert_eq!((shown(delivered), delivered.followed_ms), (wanted.to_vec(), Some(12.5)));
    // Eight in the broker, with the two in the queue, are not in the 7.5 until a server took it.
    let log_end_to_end = ("log_end_to_end", 1.4, 100);
    let server = ServerStages::between("", &metrics(&[&DIRECT[..], &[log_end_to_end]].concat()));
    let delivered = Stages::of(&server, &with).delivered.unwrap();
    assert_eq!(shown(&delivered)[1..3], [(TO_SERVER, 0.0), ("log", 8.0)]);
    assert_eq!(delivered.mark().as_deref(), Some("the stages add up to 120 % of the whole: they overlap"));
    let chance = Means { error: Some(1.0), ..followed };
    let with = Generated { followed_to_subscribers: Some(chance), ..several };
    let delivered = Stages::of(&server, &with).delivered.unwrap();
    assert_eq!((shown(&delivered)[2], delivered.unaccounted), (("log", 5.5), 0.0), "it may be chance");
}

#[test]
fn questions_about_messages_are_no_strangers() {
    // 6.2 ms of each message, and forty questions of half a millisecond.
    let text = metrics(&[&DIRECT[..], &[("http_request", 0.64, 140)]].concat());
    let confirmed =
        |asked| Stages::of(&ServerStages::between("", &text), &Generated { asked, ..known() }).confirmed;
    assert_eq!(shown(&confirmed((40.0, 20.0)).unwrap())[1], ("handling", 0.2));
    assert!(shown(&confirmed((0.0, 0.0)).unwrap()).iter().all(|(name, _)| *name != "handling"));
}

#[test]
fn stages_that_leave_time_out_are_marked() {
    let server = ServerStages::between("", &metrics(&DIRECT));
    let at = |confirmed_ms| Stages::of(&server, &Generated { confirmed_ms, ..known() });
    // The stages are 6.8 ms, the network included.
    let [whole, most] = [7.1, 7.75].map(at);
    assert_eq!((whole.marks().next(), most.confirmed.as_ref().unwrap().overlaps), (None, false));
    let said = ["until the answer, 12 % not accounted for"];
    assert_eq!(most.marks().collect::<Vec<_>>(), said);
    let json = serde_json::to_value(&most).unwrap();
    assert_eq!(json["confirmed"]["mark"], "12 % not accounted for");
    assert!(json["delivered"].get("mark").is_none(), "{json}");
    let mut older = json.clone();
    older["confirmed"].as_object_mut().unwrap().remove("mark");
    let older: Stages = serde_json::from_value(older).unwrap();
    assert_eq!(older.marks().collect::<Vec<_>>(), said, "programs that wrote no mark");
    let worst = Stages::worst([whole, most, Stages::default()]);
    assert_eq!(worst.marks().collect::<Vec<_>>(), said, "the worst of several runs");
    let overlapping = Stages::worst([at(7.75), at(5.0)]);
    assert!(overlapping.marks().next().is_some_and(|mark| mark.contains("130 %")), "{overlapping:?}");
}

#[test]
fn behind_a_broker_its_answer_counts() {
    let broker = [("log_confirm", 0.4, 100), ("log_end_to_end", 0.9, 100)];
    let counted = "hubbub_log_messages_consumed_total 100\nhubbub_messages_stored_total 60\n";
    let text = metrics(&[&DIRECT[..], &broker[..]].concat()) + counted;
    let server = ServerStages::between("hubbub_messages_stored_total 20\n", &text);
    assert_eq!(server.stored_behind_broker(), Some(40.0));
    let begun_anew = ServerStages::between("hubbub_messages_stored_total 90\n", &text);
    assert_eq!(begun_anew.stored_behind_broker(), None);
    let direct = metrics(&DIRECT) + "hubbub_messages_stored_total 60\n";
    assert_eq!(ServerStages::between("", &direct).stored_behind_broker(), None, "answers say it");
    let stages = Stages::of(&server, &known());
    let wanted = [("client", 0.5), ("log", 4.0), ("network", 0.3), (UNACCOUNTED, 2.2), (WHOLE, 7.0)];
    assert_eq!(shown(&stages.confirmed.unwrap()), wanted);
    // From publishing to the store are 9 ms, of which the pipeline has 6.
    let delivered = stages.delivered.unwrap();
    assert_eq!(shown(&delivered)[1], ("log", 3.0));
    // Published by others, so that the server confirmed nothing.
    let text = metrics(&DIRECT) + "hubbub_log_messages_consumed_total 100\n";
    assert_eq!(Stages::of(&ServerStages::between("", &text), &known()).confirmed, None);
}

#[test]
fn requests_that_servers_measured_leave_only_both_ways() {
    let way = |others: &[(&str, f64, u32)]| {
        let text = metrics(&[&DIRECT[..], others].concat());
        Stages::of(&ServerStages::between("", &text), &known()).confirmed.unwrap()
    };
    // 6.2 ms each, over both protocols, and another one that somebody else asked.
    let requests = [("http_request", 0.4, 61), ("line_command", 0.2262, 40)];
    let wanted = [
        ("client", 0.5),
        ("handling", 0.2),
        ("queue", 2.0),
        ("commit", 3.9),
        ("answer", 0.1),
        (BOTH_WAYS, 0.3),
        (UNACCOUNTED, 0.0),
        (WHOLE, 7.0),
    ];
    assert_eq!(shown(&way(&requests)), wanted);
    // Mostly others', or not all: these say nothing of ours.
    for count in [97, 103] {
        let others = way(&[("http_request", 0.62, count)]);
        assert_eq!(shown(&others)[4], ("network", 0.3), "{others:?}");
        // Unless nobody knows how many of ours ended just then.
        let text = metrics(&[&DIRECT[..], &[("http_request", 0.62, count)]].concat());
        let known = Generated { ended_off: 1.0, ..known() };
        let ours = Stages::of(&ServerStages::between("", &text), &known).confirmed.unwrap();
        assert_eq!(shown(&ours)[5].0, BOTH_WAYS, "{ours:?}");
    }
    // Stages that overlap are not hidden.
    let overlapping = way(&[("http_request", 0.5, 100)]);
    assert_eq!(shown(&overlapping)[5..7], [(BOTH_WAYS, 1.5), (UNACCOUNTED, -1.0)]);
    assert!(overlapping.mark().is_some());
    // Reads need no batch.
    let reads = ServerStages::between("", &metrics(&[("http_request", 0.62, 100)]));
    let reads = Stages::of(&reads, &known()).confirmed.unwrap();
    assert_eq!(shown(&reads)[..3], [("client", 0.5), ("handling", 6.2), (BOTH_WAYS, 0.3)]);
}

#[test]
fn stages_longer_than_the_whole_are_marked() {
    let server = ServerStages::between("", &metrics(&DIRECT));
    let way = |confirmed_ms| Stages::of(&server, &Generated { confirmed_ms, ..known() }).confirmed;
    let way_of = |confirmed_ms| way(confirmed_ms).unwrap();
    // 6.5 ms were measured.
    assert_eq!((way_of(6.4).mark(), way_of(6.4).overlaps), (None, false));
    assert!(way_of(6.4).unaccounted < 0.0);
    assert_eq!(way_of(5.0).mark().as_deref(), Some("the stages add up to 130 % of the whole: they overlap"));
    assert_eq!(way(0.0), None);
    assert_eq!(Stages::of(&ServerStages::default(), &known()), Stages::default());
    let restarted = ServerStages::between(&metrics(&[("pipeline_total", 9.0, 900)]), &metrics(&DIRECT));
    assert_eq!(Stages::of(&restarted, &known()), Stages::default(), "who began anew says nothing");
}
