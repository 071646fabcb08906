//! JSON that clients send: messages of rooms and queues, takes, settings of queues.

#![no_main]

use hubbub_core::Timestamp;
use hubbub_core::draft::{Defaults, MessageDraft, Rules};
use hubbub_core::limits::Limits;
use hubbub_core::queue_draft::{QueueSendDraft, QueueSettingsDraft, TakeDraft};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (limits, now) = (Limits::default(), Timestamp::from_micros(1_700_000_000_000_000));
    let mut faults = Vec::new();
    if let Ok(draft) = serde_json::from_str::<MessageDraft<'_>>(text) {
        for (rules, room, user) in [(Rules::Api, None, Some("ada")), (Rules::Chat, Some("lobby"), None)] {
            faults.clear();
            let checked = draft.check(rules, &limits, &Defaults { room, user, id: "made", now }, &mut faults);
            assert_eq!(checked.is_none(), !faults.is_empty(), "{faults:?}");
            if let Some(send) = checked {
                assert!(send.text.len() <= limits.message_bytes && !send.id.is_empty());
            }
        }
    }
    if let Ok(draft) = serde_json::from_str::<QueueSendDraft<'_>>(text) {
        let _ = draft.check("q", &limits, Some("ada"), None, &mut faults);
    }
    if let Ok(draft) = serde_json::from_str::<TakeDraft<'_>>(text) {
        let _ = draft.check(None, &mut faults);
    }
    if let Ok(draft) = serde_json::from_str::<QueueSettingsDraft<'_>>(text) {
        let _ = draft.check("q", &mut faults);
    }
});
