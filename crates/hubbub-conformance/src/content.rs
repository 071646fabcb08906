//! What a message may hold comes back unchanged, wherever it is kept.

use hubbub_core::MessageType;
use hubbub_core::id::ID_BYTES_MAX;
use hubbub_core::limits::MESSAGE_BYTES_MAX;

use super::Fixture;
use super::model::Post;
use super::steps::{Stage, apply, everything, store, store_many, store_one};

/// Compares the posts of a room in every stage.
async fn comes_back(fixture: &mut impl Fixture, room: &str, posts: &[Post]) {
    for stage in Stage::ALL {
        stage.reach(fixture).await;
        let shown = everything(fixture, room).await;
        assert_eq!(shown.len(), posts.len(), "{stage:?}");
        for (kept, post) in shown.iter().zip(posts) {
            assert!(kept.post == *post, "{stage:?}: {} differs", post.id);
        }
    }
}

/// Every character but U+0000, of one to four bytes.
pub async fn every_legal_character_comes_back(fixture: &mut impl Fixture) {
    let legal: Vec<char> = ('\u{1}'..=char::MAX).collect();
    let post = |(n, some): (usize, &[char])| Post::new("a", &format!("m{n}")).text(String::from_iter(some));
    let posts: Vec<Post> = legal.chunks(4_000).enumerate().map(post).collect();
    for some in posts.chunks(20) {
        store(fixture, some).await;
    }
    comes_back(fixture, "a", &posts).await;
}

/// Display name or none, every type, texts of one byte and of many lines.
pub async fn parts_come_back_as_they_were_sent(fixture: &mut impl Fixture) {
    let post = |n: usize| Post::new("a", &format!("m{n}"));
    let longest_name = "é".repeat(127) + "x";
    let posts = [
        post(0),
        post(1).username("Zoë 🦀"),
        post(2).username(&longest_name).kind(MessageType::Join).text("."),
        post(3).kind(MessageType::Leave).text("🦀"),
        post(4).user("A.b:c@d_e-9").text("{\"a\":[1,\"\\u0000\"]}\r\n\t'; DROP TABLE messages; --"),
        post(5).username("x").text("e\u{301} \u{202e}\u{feff}\u{1f469}\u{200d}\u{1f4bb}"),
        post(6).text(" "),
        post(7).text("\n\n"),
    ];
    store(fixture, &posts).await;
    comes_back(fixture, "a", &posts).await;
}

/// A text of 16 MiB, between small ones.
pub async fn the_largest_text_comes_back(fixture: &mut impl Fixture) {
    let large: String = (0..MESSAGE_BYTES_MAX / 4).map(|n| ['🦀', '🦞', '🐚'][n % 7 % 3]).collect();
    assert_eq!(large.len(), MESSAGE_BYTES_MAX);
    let posts = [Post::new("a", "before"), Post::new("a", "large").text(large), Post::new("a", "behind")];
    let mut receipts = Vec::new();
    for post in &posts {
        receipts.push(store_one(fixture, post).await);
    }
    comes_back(fixture, "a", &posts).await;
    let again = apply(fixture, &posts[1..2]).await;
    assert_eq!(again[0], hubbub_core::Outcome::Duplicate(receipts[1]));
}

/// Every character an id may have, at every length, upper case told from lower.
pub async fn ids_are_kept_as_they_were_written(fixture: &mut impl Fixture) {
    let legal: String = (' '..='~').filter(|c| hubbub_core::id::is_valid_id(&c.to_string())).collect();
    let mut ids: Vec<String> = legal.chars().map(String::from).collect();
    ids.extend((2..=ID_BYTES_MAX).map(|bytes| legal[..bytes].to_owned()));
    ids.extend(
        ["0198c0de-0000-7000-8000-00000000000a", "0198C0DE-0000-7000-8000-00000000000A"].map(String::from),
    );
    ids.extend(
        ["0198c0de00007000800000000000000a", "0198c0de-0000-7000-8000-00000000000g"].map(String::from),
    );
    let posts: Vec<Post> = ids.iter().map(|id| Post::new("a", id).user(id)).collect();
    store_many(fixture, &posts).await;
    comes_back(fixture, "a", &posts).await;
    for room in &ids {
        store_one(fixture, &Post::new(room, "in-a-room-of-that-name")).await;
    }
    fixture.seal_all().await;
    for room in ids.iter().filter(|room| *room != "a") {
        let shown = everything(fixture, room).await;
        assert!(shown.len() == 1 && shown[0].post.room == *room, "{room}: {shown:?}");
    }
}
