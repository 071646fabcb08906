//! The codec against the RFC's examples, against itself, and against noise.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use hubbub_ws::{Event, Opcode, ProtocolError, Reader, Role, write};
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq)]
enum Owned {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Failed(ProtocolError),
}

fn own(event: Event<'_>) -> Owned {
    match event {
        Event::Text(text) => Owned::Text(text.to_owned()),
        Event::Binary(bytes) => Owned::Binary(bytes.to_vec()),
        Event::Ping(bytes) => Owned::Ping(bytes.to_vec()),
        Event::Pong(bytes) => Owned::Pong(bytes.to_vec()),
        Event::Close { code, reason } => Owned::Close(code, reason.to_owned()),
    }
}

fn read_parts(role: Role, max: usize, parts: &[&[u8]]) -> Vec<Owned> {
    let mut reader = Reader::new(role, max);
    let mut events = Vec::new();
    for part in parts {
        let mut input = part.to_vec();
        let mut frames = reader.feed(&mut input);
        loop {
            match frames.next() {
                Ok(Some(event)) => events.push(own(event)),
                Ok(None) => break,
                Err(error) => {
                    events.push(Owned::Failed(error));
                    return events;
                }
            }
        }
        assert!(!reader.is_idle() || reader.held_bytes() == 0, "an idle reader holds no buffer");
    }
    events
}

fn read(role: Role, bytes: &[u8]) -> Vec<Owned> {
    read_parts(role, 1 << 20, &[bytes])
}

fn split_at<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.push(bytes.len());
    cuts.sort_unstable();
    let mut from = 0;
    cuts.into_iter().map(|cut| &bytes[std::mem::replace(&mut from, cut)..cut]).collect()
}

#[test]
fn the_examples_of_the_rfc() {
    let hello = Owned::Text("Hello".into());
    assert_eq!(read(Role::Client, &[0x81, 5, 0x48, 0x65, 0x6c, 0x6c, 0x6f]), std::slice::from_ref(&hello));
    let masked = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    assert_eq!(read(Role::Server, &masked), std::slice::from_ref(&hello));
    let mut out = Vec::new();
    write::write_masked(&mut out, Opcode::Text, b"Hello", [0x37, 0xfa, 0x21, 0x3d]);
    assert_eq!(out, masked);
    let fragmented = [0x01, 3, 0x48, 0x65, 0x6c, 0x80, 2, 0x6c, 0x6f];
    assert_eq!(read(Role::Client, &fragmented), std::slice::from_ref(&hello));
    assert_eq!(
        read(Role::Client, &[0x89, 5, b'H', b'e', b'l', b'l', b'o']),
        [Owned::Ping(b"Hello".to_vec())]
    );
    let mut big = vec![0x82, 0x7e, 1, 0];
    big.extend([7; 256]);
    assert_eq!(read(Role::Client, &big), [Owned::Binary(vec![7; 256])]);
    let mut huge = vec![0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
    huge.extend([7; 65536]);
    assert_eq!(read(Role::Client, &huge), [Owned::Binary(vec![7; 65536])]);
}

#[test]
fn control_frames_come_between_fragments() {
    let bytes = [0x01, 1, b'a', 0x89, 1, b'p', 0x00, 1, b'b', 0x8a, 0, 0x80, 1, b'c'];
    let expected = [Owned::Ping(b"p".to_vec()), Owned::Pong(Vec::new()), Owned::Text("abc".into())];
    assert_eq!(read(Role::Client, &bytes), expected);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(read_parts(Role::Client, 3, &single), expected);
}

#[test]
fn what_the_rfc_forbids_is_refused() {
    let refused = |role, bytes: &[u8]| match read(role, bytes).pop() {
        Some(Owned::Failed(error)) => (error, error.close_code()),
        other => panic!("{other:?}"),
    };
    let cases: [(&[u8], ProtocolError); 14] = [
        (&[0xc1, 0], ProtocolError::ReservedBits),
        (&[0x83, 0], ProtocolError::ReservedOpcode(3)),
        (&[0x81, 0x80], ProtocolError::Masked),
        (&[0x09, 0], ProtocolError::ControlFragmented),
        (&[0x89, 126], ProtocolError::ControlTooLong),
        (&[0x81, 126, 0, 125], ProtocolError::LengthNotMinimal),
        (&[0x81, 127, 0, 0, 0, 0, 0, 0, 255, 255], ProtocolError::LengthNotMinimal),
        (&[0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], ProtocolError::LengthTooLarge),
        (&[0x80, 0], ProtocolError::UnexpectedContinuation),
        (&[0x01, 0, 0x81, 0], ProtocolError::UnfinishedMessage),
        (&[0x88, 1, 3], ProtocolError::BadCloseCode),
        (&[0x88, 2, 0x03, 0xed], ProtocolError::BadCloseCode),
        (&[0x81, 1, 0xff], ProtocolError::BadUtf8),
        (&[0x88, 3, 0x03, 0xe8, 0xff], ProtocolError::BadUtf8),
    ];
    for (bytes, error) in cases {
        let code = if error == ProtocolError::BadUtf8 { 1007 } else { 1002 };
        assert_eq!(refused(Role::Client, bytes), (error, code));
    }
    assert_eq!(refused(Role::Server, &[0x81, 0]).0, ProtocolError::Unmasked);
}

#[test]
fn a_message_over_the_limit_is_refused_by_its_header() {
    let too_big = Owned::Failed(ProtocolError::TooBig { limit_bytes: 4 });
    assert_eq!(read_parts(Role::Client, 4, &[&[0x81, 5]]), std::slice::from_ref(&too_big));
    assert_eq!(read_parts(Role::Client, 4, &[&[0x01, 3, 1, 2, 3, 0x80, 2]]), [too_big]);
    assert_eq!(read_parts(Role::Client, 4, &[&[0x81, 4, 1, 2, 3, 4]]).len(), 1);
}

#[test]
fn nothing_is_read_after_a_close() {
    let bytes = [0x88, 4, 0x11, 0x39, b'o', b'k', 0x81, 1, b'x'];
    assert_eq!(read(Role::Client, &bytes), [Owned::Close(Some(4409), "ok".into())]);
    assert_eq!(read(Role::Client, &[0x88, 0]), [Owned::Close(None, String::new())]);
}

#[test]
fn a_frame_written_in_place_equals_one_written_whole() {
    for len in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
        let text = vec![b'x'; len];
        let (mut whole, mut patched) = (vec![1, 2, 3], vec![1, 2, 3]);
        write::write_text(&mut whole, &text);
        let start = write::begin_text(&mut patched);
        patched.extend_from_slice(&text);
        write::end_text(&mut patched, start);
        assert_eq!(whole, patched, "{len}");
    }
}

#[test]
fn a_long_close_reason_is_cut_between_characters() {
    let mut out = Vec::new();
    write::write_close(&mut out, 1001, &"ü".repeat(100));
    assert_eq!(read(Role::Client, &out), [Owned::Close(Some(1001), "ü".repeat(61))]);
}

fn message() -> impl Strategy<Value = Owned> {
    let bytes = |max| prop::collection::vec(any::<u8>(), 0..max);
    prop_oneof![
        "\\PC{0,200}".prop_map(Owned::Text),
        bytes(70_000).prop_map(Owned::Binary),
        bytes(126).prop_map(Owned::Ping),
        bytes(126).prop_map(Owned::Pong),
    ]
}

fn payload(message: &Owned) -> (Opcode, &[u8]) {
    match message {
        Owned::Text(text) => (Opcode::Text, text.as_bytes()),
        Owned::Binary(bytes) => (Opcode::Binary, bytes),
        Owned::Ping(bytes) => (Opcode::Ping, bytes),
        Owned::Pong(bytes) => (Opcode::Pong, bytes),
        other => panic!("{other:?} is not sent here"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn both_roles_read_what_the_other_wrote(
        messages in prop::collection::vec((message(), any::<[u8; 4]>()), 0..8),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
        for (message, key) in &messages {
            let (opcode, payload) = payload(message);
            write::write_masked(&mut from_client, opcode, payload, *key);
            write::frame_header(&mut from_server, opcode, payload.len());
            from_server.extend_from_slice(payload);
        }
        let expected: Vec<Owned> = messages.into_iter().map(|(message, _)| message).collect();
        prop_assert_eq!(&read_parts(Role::Server, 1 << 20, &split_at(&from_client, &cuts)), &expected);
        prop_assert_eq!(&read_parts(Role::Client, 1 << 20, &split_at(&from_server, &cuts)), &expected);
    }

    #[test]
    fn noise_means_the_same_wherever_it_is_cut(
        noise in prop::collection::vec(prop_oneof![
            3 => any::<u8>(), 2 => Just(0x81_u8), 1 => Just(0x01), 1 => Just(0x80), 1 => Just(0x89), 2 => 0_u8..5,
        ], 0..300),
        cuts in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        for role in [Role::Client, Role::Server] {
            let whole = read_parts(role, 100, &[&noise]);
            prop_assert_eq!(&whole, &read_parts(role, 100, &split_at(&noise, &cuts)));
            let single: Vec<&[u8]> = noise.chunks(1).collect();
            prop_assert_eq!(&whole, &read_parts(role, 100, &single));
        }
    }
}

/// Only the header of a binary message is read; texts and control frames around it are as ever.
#[test]
fn a_reader_of_texts_refuses_binary_messages_by_their_header() {
    let mut frames = Vec::new();
    write::write_masked(&mut frames, Opcode::Text, b"a text", [1, 2, 3, 4]);
    write::write_masked(&mut frames, Opcode::Ping, b"", [0; 4]);
    let binary = frames.len();
    write::write_masked(&mut frames, Opcode::Binary, &[7; 70_000], [1, 2, 3, 4]);
    let header_bytes = 14;
    // Cut within the header, too.
    for cut in 0..header_bytes {
        let mut reader = Reader::new(Role::Server, 1 << 20).text_only();
        let mut events = Vec::new();
        let mut parts =
            [frames[..binary + cut].to_vec(), frames[binary + cut..binary + header_bytes].to_vec()];
        for part in &mut parts {
            let mut read = reader.feed(part);
            loop {
                match read.next() {
                    Ok(Some(event)) => events.push(own(event)),
                    Ok(None) => break,
                    Err(error) => {
                        events.push(Owned::Failed(error));
                        break;
                    }
                }
            }
        }
        let expected =
            [Owned::Text("a text".to_owned()), Owned::Ping(Vec::new()), Owned::Failed(ProtocolError::Binary)];
        assert_eq!(events, expected, "{cut}");
        assert_eq!(reader.held_bytes(), 0);
    }
}

/// However a message comes, the memory for it ends where the limit of messages does; a control frame may come within it.
#[test]
fn what_is_held_stays_within_the_limit() {
    const LIMIT: usize = 4_096;
    let mut within = Vec::new();
    write::write_masked(&mut within, Opcode::Ping, &[7; 125], [9, 8, 7, 6]);
    let mut whole = Vec::new();
    write::write_masked(&mut whole, Opcode::Text, &[b'a'; LIMIT], [1, 2, 3, 4]);
    // As two fragments with a control frame between them.
    let mut fragments = Vec::new();
    write::write_masked(&mut fragments, Opcode::Text, &[b'a'; LIMIT - 1], [1, 2, 3, 4]);
    fragments[0] &= 0x7f;
    fragments.extend_from_slice(&within);
    write::write_masked(&mut fragments, Opcode::Continuation, b"a", [1, 2, 3, 4]);
    for bytes in [&whole, &fragments] {
        for step in [1, 7, 100, 250, 1_000, LIMIT / 2 + 1, LIMIT - 1] {
            let mut reader = Reader::new(Role::Server, LIMIT);
            let mut events = Vec::new();
            for part in bytes.chunks(step) {
                let mut part = part.to_vec();
                let mut frames = reader.feed(&mut part);
                while let Some(event) = frames.next().unwrap() {
                    events.push(own(event));
                }
                assert!(reader.held_bytes() <= LIMIT + 125, "{} at steps of {step}", reader.held_bytes());
            }
            assert_eq!(events.last(), Some(&Owned::Text("a".repeat(LIMIT))), "{step}");
            assert_eq!(reader.held_bytes(), 0);
        }
    }
}
