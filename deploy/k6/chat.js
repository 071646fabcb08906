// A load of one chat room: ten listeners, and senders that go from 1,000 to 10,000 to 26,000 messages a second.
//
//   k6 run deploy/k6/chat.js
//   k6 run -e SERVER=http://127.0.0.1:8080 -e SCALE=0.1 -e STAGE=10s deploy/k6/chat.js
//
// SCALE multiplies the rates, STAGE is the time of each stage, ROOM a new room. Every listener must get every message, in
// order and once. Numbers may have gaps: on Cassandra and ScyllaDB they are those of the log's records. k6 and the server
// share the machine's cores if both run on it.
import { check } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Trend } from 'k6/metrics';
import { WebSocket } from 'k6/websockets';

const SERVER = __ENV.SERVER || 'http://127.0.0.1:8080';
const SCALE = Number(__ENV.SCALE || 1);
const STAGE = __ENV.STAGE || '30s';
const ROOM = __ENV.ROOM || `k6-${Date.now()}`;
const LISTENERS = 10;
// The text of the last message, behind all others.
const END = 'end';
// Sends that are under way when the last stage ends take a moment.
const ENDING_MS = 5_000;
// How long listeners may take to get what is left when the last message was sent.
const CATCH_UP_MS = 30_000;

const STAGES = [1_000, 10_000, 26_000];
const rate = (perSecond) => Math.max(1, Math.round(perSecond * SCALE));
const stageMs = () => {
  const [, number, unit] = /^(\d+)(s|m)$/.exec(STAGE);
  return Number(number) * (unit === 'm' ? 60_000 : 1_000);
};
const sendingMs = 2 * STAGES.length * stageMs();

const delivered = new Counter('messages_delivered');
const disorder = new Counter('messages_out_of_order');
const latency = new Trend('delivery_latency', true);

export const options = {
  scenarios: {
    listeners: {
      executor: 'per-vu-iterations',
      exec: 'listen',
      vus: LISTENERS,
      iterations: 1,
      maxDuration: `${sendingMs + 2 * CATCH_UP_MS}ms`,
    },
    senders: {
      executor: 'ramping-arrival-rate',
      exec: 'send',
      // After the listeners are there.
      startTime: '2s',
      timeUnit: '1s',
      startRate: rate(STAGES[0]),
      preAllocatedVUs: Math.max(10, Math.ceil(500 * SCALE)),
      maxVUs: Math.max(20, Math.ceil(2_000 * SCALE)),
      // Up to each rate, and then at it.
      stages: STAGES.flatMap((target) => [rate(target), rate(target)]).map((target) => ({ target, duration: STAGE })),
      gracefulStop: '10s',
    },
    ender: {
      executor: 'per-vu-iterations',
      exec: 'end',
      vus: 1,
      iterations: 1,
      startTime: `${2_000 + sendingMs + ENDING_MS}ms`,
    },
  },
  thresholds: {
    checks: ['rate==1'],
    http_req_failed: ['rate==0'],
    messages_out_of_order: ['count==0'],
    messages_delivered: ['count>0'],
  },
};

// The room, which all share.
export function setup() {
  const made = http.put(`${SERVER}/v1/rooms/${ROOM}`, '{}');
  check(made, { 'the room is there': (answer) => answer.status === 200 || answer.status === 201 });
  return { room: ROOM, endsAt: Date.now() + 2_000 + sendingMs };
}

export function send({ room }) {
  post(room, `message ${exec.scenario.iterationInTest}`);
}

// With a log in front of the store messages are stored after they were accepted, but in order: what is before this is there.
export function end({ room }) {
  post(room, END);
}

function post(room, text) {
  const message = { userId: `sender-${exec.vu.idInTest}`, message: text, timestamp: new Date().toISOString() };
  const answer = http.post(`${SERVER}/v1/rooms/${room}/messages`, JSON.stringify(message), { tags: { name: 'send' } });
  check(answer, { 'the message is durable': ({ status }) => status === 201 || status === 202 });
}

export function listen({ room, endsAt }) {
  const user = `listener-${exec.vu.idInTest}`;
  const socket = new WebSocket(`${SERVER.replace(/^http/, 'ws')}/v1/ws?user=${user}`);
  let last = 0;
  let received = 0;
  let hasEnded = false;
  const finish = (messages) => {
    check(received, { 'a listener got every message': (count) => hasEnded && count === messages });
    socket.close();
  };
  // Asks how many messages there are until they are here, or for too long.
  const wait = () => {
    const { messages } = http.get(`${SERVER}/v1/rooms/${room}`, { tags: { name: 'room' } }).json();
    if ((hasEnded && received >= messages) || Date.now() > endsAt + CATCH_UP_MS) {
      finish(messages);
    } else {
      setTimeout(wait, 200);
    }
  };
  socket.onopen = () => {
    socket.send(JSON.stringify({ type: 'subscribe', roomId: room, after: 0 }));
    setTimeout(wait, endsAt + ENDING_MS - Date.now());
  };
  socket.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type !== 'message') return;
    if (frame.seq <= last) disorder.add(1);
    last = frame.seq;
    received += 1;
    hasEnded = hasEnded || frame.message === END;
    delivered.add(1);
    latency.add(Date.now() - Date.parse(frame.timestamp));
  };
  socket.onerror = ({ error }) => {
    check(null, { 'the socket stays open': () => false });
    console.error(`${user}: ${error}`);
  };
}
