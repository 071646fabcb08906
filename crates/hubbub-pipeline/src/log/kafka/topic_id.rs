//! The id of a topic: one that was deleted and created again has another. The library's safe interface does not offer it.
#![allow(unsafe_code, reason = "the library's interface is C")]

use std::ffi::{CStr, CString, c_char};
use std::ptr::null_mut;

use rdkafka::admin::AdminClient;
use rdkafka::bindings as c;
use rdkafka::client::DefaultClientContext;

/// The id of topics that have none, as the library shows it.
pub(super) const NONE: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// The id, as Kafka's tools show it; [`NONE`] if the brokers' protocol has no ids (Redpanda before 25.3). Blocks up to
/// `timeout_ms`.
pub(super) fn fetch(
    admin: &AdminClient<DefaultClientContext>,
    topic: &str,
    timeout_ms: i32,
) -> Result<String, String> {
    let name = CString::new(topic).map_err(|error| error.to_string())?;
    let mut names: [*const c_char; 1] = [name.as_ptr()];
    // SAFETY: the client outlives the calls. The queue, the collection and the event are created here and destroyed once, in
    // the order that the library asks for; what the event owns is copied before. The names live until the request is made.
    unsafe {
        let client = admin.inner().native_ptr();
        let queue = c::rd_kafka_queue_new(client);
        let topics = c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr().cast(), names.len());
        c::rd_kafka_DescribeTopics(client, topics, null_mut(), queue);
        let event = c::rd_kafka_queue_poll(queue, timeout_ms);
        let id = read(event);
        if !event.is_null() {
            c::rd_kafka_event_destroy(event);
        }
        c::rd_kafka_TopicCollection_destroy(topics);
        c::rd_kafka_queue_destroy(queue);
        id
    }
}

/// # Safety
/// `event` is null, or the event of the answer.
unsafe fn read(event: *mut c::rd_kafka_event_t) -> Result<String, String> {
    if event.is_null() {
        return Err("there was no answer".to_owned());
    }
    // SAFETY: pointers that the library returns are checked for null and used before the event is destroyed.
    unsafe {
        if c::rd_kafka_event_error(event) != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(text(c::rd_kafka_event_error_string(event)));
        }
        let result = c::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return Err("the answer is no description".to_owned());
        }
        let mut count = 0;
        let topics = c::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if topics.is_null() || count != 1 {
            return Err("the answer has no topic".to_owned());
        }
        let error = c::rd_kafka_TopicDescription_error(*topics);
        if !error.is_null()
            && c::rd_kafka_error_code(error) != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR
        {
            return Err(text(c::rd_kafka_error_string(error)));
        }
        Ok(text(c::rd_kafka_Uuid_base64str(c::rd_kafka_TopicDescription_topic_id(*topics))))
    }
}

/// # Safety
/// `text` is null, or a string that ends with a zero.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: see above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
