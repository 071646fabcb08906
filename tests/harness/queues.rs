//! What tests do with queues.

use hyper::Method;
use serde_json::{Value, json};

use super::{Answer, Http, Server};

impl Server {
    /// Makes or changes a queue; must succeed.
    pub(crate) async fn put_queue(&self, queue: &str, settings: Value) -> Value {
        let answer = self.call("", Method::PUT, &format!("/v1/queues/{queue}"), settings).await;
        assert!(answer.status == 200 || answer.status == 201, "{}", answer.text());
        answer.json()
    }

    /// Registers clients.
    pub(crate) async fn register(&self, clients: &[&str]) {
        for client in clients {
            let answer = self.call("", Method::PUT, &format!("/v1/clients/{client}"), Value::Null).await;
            assert_eq!(answer.status, 204, "{}", answer.text());
        }
    }

    /// Sends a message for whoever takes it first; gives its id.
    pub(crate) async fn enqueue(&self, queue: &str, text: &str) -> String {
        self.enqueue_with(queue, json!({"message": text})).await
    }

    /// The same with anything a message may say.
    pub(crate) async fn enqueue_with(&self, queue: &str, mut message: Value) -> String {
        message["sender"] = "boss".into();
        let answer = self.post(&format!("/v1/queues/{queue}/messages"), &message).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// `get`, `read` or `lease`; must succeed.
    pub(crate) async fn take(&self, how: &str, queue: &str, body: Value) -> Vec<Value> {
        self.http().await.take(how, queue, body).await
    }

    /// `ack`, `nack` or `extend`.
    pub(crate) async fn settle(&self, how: &str, queue: &str, receipt: &str, mut body: Value) -> Answer {
        let (id, _) = receipt.split_once('-').unwrap();
        body["receipt"] = receipt.into();
        self.post(&format!("/v1/queues/{queue}/messages/{id}/{how}"), &body).await
    }

    /// Everything in a queue, in any state.
    pub(crate) async fn waiting(&self, queue: &str) -> Vec<Value> {
        let answer = self.get(&format!("/v1/queues/{queue}/messages?limit=1000")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["messages"].as_array().unwrap().clone()
    }
}

impl Http {
    /// `get`, `read` or `lease` over this connection; must succeed.
    pub(crate) async fn take(&mut self, how: &str, queue: &str, body: Value) -> Vec<Value> {
        let answer = self.post(&format!("/v1/queues/{queue}/{how}"), body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["messages"].as_array().unwrap().clone()
    }
}

/// The receipt of a message on lease.
pub(crate) fn receipt(message: &Value) -> &str {
    message["receipt"].as_str().unwrap()
}
