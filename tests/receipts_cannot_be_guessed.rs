//! Where tokens are needed, only who was given a receipt ends or extends the lease: not everybody who may read the queue. All
//! servers of a store accept it, also after a restart.

use hyper::Method;
use serde_json::{Value, json};

use crate::harness::tokens::{admin, call, token};
use crate::harness::{Answer, Postgres, Server, Setup, receipt};

fn token_of(user: &str) -> String {
    token(json!({"sub": user, "queues": {"jobs": "r"}}))
}

/// A queue with a message for each of these clients.
async fn send_to(server: &Server, clients: &[&str]) {
    let ask = async |method: Method, path: &str, body: Value| {
        let answer = call(server.address(), &admin(), method, path, body).await;
        assert!((200..300).contains(&answer.status), "{}", answer.text());
    };
    ask(Method::PUT, "/v1/queues/jobs", Value::Null).await;
    for client in clients {
        ask(Method::PUT, &format!("/v1/clients/{client}"), Value::Null).await;
        let message = json!({"sender": "root", "receiver": client, "message": format!("for {client}")});
        ask(Method::POST, "/v1/queues/jobs/messages", message).await;
    }
}

/// Takes the one message that waits for a client.
async fn lease(server: &Server, client: &str) -> Value {
    let body = json!({"leaseMs": 600_000});
    let answer = call(server.address(), &token_of(client), Method::POST, "/v1/queues/jobs/lease", body).await;
    let taken = answer.json()["messages"].as_array().unwrap().clone();
    assert_eq!(taken.len(), 1, "{}", answer.text());
    taken[0].clone()
}

async fn settle(server: &Server, client: &str, how: &str, receipt: &str) -> Answer {
    let (id, _) = receipt.split_once('-').unwrap();
    let path = format!("/v1/queues/jobs/messages/{id}/{how}");
    call(server.address(), &token_of(client), Method::POST, &path, json!({"receipt": receipt})).await
}

async fn ack_many(server: &Server, client: &str, receipts: &[&str]) -> Vec<Value> {
    let body = json!({"receipts": receipts});
    let answer = call(server.address(), &token_of(client), Method::POST, "/v1/queues/jobs/ack", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_made_up_receipt_ends_no_lease_of_others() {
    let mut server = Setup::new().with_tokens().start();
    send_to(&server, &["alice", "bob"]).await;
    let (of_alice, of_bob) = (lease(&server, "alice").await, lease(&server, "bob").await);
    let (of_alice, of_bob) = (receipt(&of_alice), receipt(&of_bob));
    // All that bob cannot know of alice's receipt is the code: ids and deliveries are counted, and the rest is in his own.
    let (_, epoch_and_code) = of_bob.split_once("-1-").unwrap();
    let with_code = format!("{}-1-{epoch_and_code}", of_alice.split_once('-').unwrap().0);
    let (plain, _) = with_code.rsplit_once('-').unwrap();
    let zeros = format!("{plain}-{}", "0".repeat(24));
    for restarted in [false, true] {
        for forged in [&with_code, plain, &zeros] {
            for how in ["ack", "nack", "extend"] {
                settle(&server, "bob", how, forged).await.faults(&["receipt"]);
            }
            assert_eq!(ack_many(&server, "bob", &[forged]).await[0]["code"], "invalid", "{forged}");
        }
        if !restarted {
            server.kill();
            server.restart();
        }
    }
    assert_eq!(settle(&server, "alice", "extend", of_alice).await.status, 200);
    assert_eq!(settle(&server, "alice", "ack", of_alice).await.status, 204);
    settle(&server, "alice", "ack", of_alice).await.problem(409, "stale_receipt");
    let results = ack_many(&server, "bob", &[&with_code, of_bob]).await;
    assert_eq!((&results[0]["code"], &results[1]["acked"]), (&json!("invalid"), &json!(true)));
    assert_eq!(results[1]["receipt"], of_bob);
}

/// Both give their first receipts at the same time, and accept those of the other.
#[tokio::test]
async fn servers_of_one_database_accept_the_same_receipts() {
    let postgres = Postgres::start("");
    let [one, two] = [(); 2].map(|()| Setup::new().with_tokens().store(&postgres.url("postgres")).start());
    send_to(&one, &["alice", "bob"]).await;
    let (of_alice, of_bob) = tokio::join!(lease(&one, "alice"), lease(&two, "bob"));
    let (of_alice, of_bob) = (receipt(&of_alice), receipt(&of_bob));
    for (server, client, receipt) in [(&two, "alice", of_alice), (&one, "bob", of_bob)] {
        assert_eq!(settle(server, client, "extend", receipt).await.status, 200, "{client}");
    }
    assert_eq!(ack_many(&two, "alice", &[of_alice]).await[0]["acked"], true);
    assert_eq!(settle(&one, "bob", "ack", of_bob).await.status, 204);
}
