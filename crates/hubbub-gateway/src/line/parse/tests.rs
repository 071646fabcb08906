use super::*;
use proptest::prelude::*;

/// All commands of `reads`, each read behind what the one before left, as a connection keeps it.
fn parse(reads: &[&[u8]]) -> Vec<String> {
    let (mut parser, mut kept, mut commands) = (Parser::default(), Vec::new(), Vec::new());
    for read in reads {
        kept.extend_from_slice(read);
        let mut used = 0;
        loop {
            let (more, command) = parser.next(&kept[used..]);
            used += more;
            match command {
                Some(command) => commands.push(format!("{command:?}")),
                None => break,
            }
        }
        kept.drain(..used);
        assert!(kept.len() <= LINE_BYTES_MAX + 1, "an unfinished line is kept no longer than a line may be");
    }
    commands
}

fn one(input: &str) -> Command<'_> {
    let mut parser = Parser::default();
    let (used, command) = parser.next(input.as_bytes());
    assert_eq!(used, input.len(), "{input:?}");
    command.unwrap()
}

#[test]
fn each_command_is_read() {
    let selection =
        |queue, sender, receiver, newest_first| Selection { queue, sender, receiver, newest_first };
    for (input, command) in [
        ("register\nid:7\n", Command::Register { client: 7 }),
        ("un_register\n", Command::Unregister),
        ("create queue\n", Command::CreateQueue),
        ("delete queue\nid:1\n", Command::DeleteQueue { queue: 1 }),
        ("list users\n", Command::ListUsers),
        ("list all queues\n", Command::ListQueues),
        ("list queues\nreceiver:2\n", Command::ListHolding { receiver: 2 }),
        (
            "send msg\nsender:1;receiver:2;queue:3;content:hi;there!\n",
            Command::Send { queue: 3, sender: 1, receiver: Some(2), content: "hi;there!" },
        ),
        (
            "send msg\nsender:1;queue:3;content:hi\n",
            Command::Send { queue: 3, sender: 1, receiver: None, content: "hi" },
        ),
        (
            "send msg\nreceiver:0;sender:1;queue:3;content:\n",
            Command::Send { queue: 3, sender: 1, receiver: None, content: "" },
        ),
        ("get msg\nqueue:2;receiver:3\n", Command::Get(selection(Some(2), None, Some(3), true))),
        ("read msg\nqueue:2;order:oldest\n", Command::Read(selection(Some(2), None, None, false))),
        ("get msg\nsender:1;receiver:2\n", Command::Get(selection(None, Some(1), Some(2), true))),
        ("ping\nanything:at;all:1\n", Command::Ping),
        ("ping\n\n", Command::Ping),
    ] {
        assert_eq!(one(input), command, "{input:?}");
        assert_eq!(one(&input.replace('\n', "\r\n")), command, "{input:?} with CRLF");
    }
}

#[test]
fn what_is_wrong_is_refused_once() {
    for input in [
        "\n",
        "bogus\n",
        "Ping\n",
        "ping \n",
        "register\n\n",
        "register\nid:x\n",
        "register\nid:0\n",
        "register\nqueue:7\n",
        "register\nregister\n",
        "list queues\nqueue:1\n",
        "send msg\nsender:1;receiver:2;queue:2\n",
        "send msg\nsender:1;receiver:x;queue:2;content:a\n",
        "send msg\nreceiver:2;queue:2;content:a\n",
        "get msg\nreceiver:2\n",
        "get msg\nqueue:1;receiver:2;order:best\n",
        "ping\nno term\n",
    ] {
        assert_eq!(one(input), Command::Bad, "{input:?}");
    }
    for input in [&b"\xff\xfe\n"[..], b"register\nid:\xff\n"] {
        assert_eq!(parse(&[input, b"ping\n\n"]), ["Bad", "Ping"]);
    }
}

#[test]
fn terms_of_an_unknown_command_are_swallowed_once() {
    assert_eq!(parse(&[b"bogus\na:b;c\nping\nx:y\n"]), ["Bad", "Ping"]);
    assert_eq!(parse(&[b"bogus\nping\nx:y\n"]), ["Bad", "Ping"]);
    assert_eq!(parse(&[b"bogus\na:b\na:b\na:b\nping\nx:y\n"]), ["Bad", "Bad", "Ping"]);
}

#[test]
fn terms_that_come_too_late_are_swallowed() {
    let mut parser = Parser::default();
    assert_eq!(parser.next(b"register\n"), (9, None));
    assert!(parser.waits_for_arguments());
    assert_eq!(parser.next(b"id:"), (0, None));
    parser.give_up();
    assert!(!parser.waits_for_arguments());
    assert_eq!(parser.next(b"id:7\nlist users\n"), (16, Some(Command::ListUsers)));
}

#[test]
fn a_line_too_long_is_skipped_and_refused_once() {
    let long = |bytes: usize, end: &str| format!("ping\nx:{}{end}", "y".repeat(bytes - 2)).into_bytes();
    for end in ["\n", "\r\n"] {
        assert_eq!(parse(&[&long(LINE_BYTES_MAX, end)]), ["Ping"], "{end:?}");
        for bytes in [LINE_BYTES_MAX + 1, LINE_BYTES_MAX + 2, 5 * LINE_BYTES_MAX] {
            assert_eq!(parse(&[&long(bytes, end), b"ping\nx:y\n"]), ["Bad", "Ping"], "{bytes} {end:?}");
        }
    }
    // The refusal does not wait for the end of the line.
    assert_eq!(parse(&[&long(LINE_BYTES_MAX + 1, "")]), ["Bad"]);
}

#[test]
fn what_a_browser_begins_with_is_told_apart() {
    let long = |begin: &str| format!("{begin}{}", "a".repeat(LINE_BYTES_MAX)).into_bytes();
    for begin in ["GET /", "POST http://h/", "OPTIONS *"] {
        assert_eq!(parse(&[&long(begin)]), ["Foreign"], "{begin}");
        assert_eq!(parse(&[&long(begin), b"\ncreate queue\n"])[0], "Foreign", "{begin}");
    }
    assert_eq!(parse(&[b"POST / HTTP/1.1\r\n"]), ["Foreign"]);
    assert_eq!(parse(&[b"\x16\x03\x01\n"]), ["Foreign"]);
    assert_eq!(parse(&[&long("get /")]), ["Bad"]);
    assert_eq!(parse(&[b"GET /\n"]), ["Bad"]);
}

fn lines() -> impl Strategy<Value = Vec<u8>> {
    let words = "(send msg|get msg|read msg|ping|register|create queue|list users|bogus|sender:1;queue:2;content:a|\
        id:7|queue:1;receiver:2|x:y|\\PC{0,9})(\n|\r\n|\r|)";
    let long = (LINE_BYTES_MAX - 2..LINE_BYTES_MAX + 4)
        .prop_map(|bytes| [vec![b'x'; bytes], b"\n".to_vec()].concat());
    let piece = prop_oneof![
        8 => words.prop_map(String::into_bytes),
        2 => proptest::collection::vec(any::<u8>(), 0..9),
        1 => long,
    ];
    proptest::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn reads_may_be_cut_anywhere(input in lines(), cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.extend([0, input.len()]);
        cuts.sort_unstable();
        let reads: Vec<&[u8]> = cuts.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
        prop_assert_eq!(parse(&reads), parse(&[&input]));
    }
}
