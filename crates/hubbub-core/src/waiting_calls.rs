//! Calls that wait for one of a few tasks, each of which serves many calls at once.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls in the order in which they came, and the tasks that serve them.
#[derive(Debug)]
pub struct WaitingCalls<C> {
    calls_max: usize,
    tasks_max: usize,
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    waiting: VecDeque<C>,
    tasks: usize,
}

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// Tasks are running, one of which serves it.
    Waits,
    /// Whoever made the call starts a task, which takes the right to serve ([`WaitingCalls::right`]).
    StartsTask,
    /// Too many calls wait.
    Refused,
}

impl<C> WaitingCalls<C> {
    /// Holds up to `calls_max` calls, and has up to `tasks_max` tasks serve them.
    pub const fn new(calls_max: usize, tasks_max: usize) -> Self {
        let state = State { waiting: VecDeque::new(), tasks: 0 };
        Self { calls_max, tasks_max, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call.
    pub fn push(&self, call: C) -> Pushed {
        let mut state = self.lock();
        if state.waiting.len() >= self.calls_max {
            return Pushed::Refused;
        }
        state.waiting.push_back(call);
        if state.tasks == self.tasks_max {
            return Pushed::Waits;
        }
        state.tasks += 1;
        Pushed::StartsTask
    }

    /// Takes up to `most` calls out, those first that came first.
    pub fn take(&self, most: usize) -> Vec<C> {
        let mut state = self.lock();
        let count = state.waiting.len().min(most);
        state.waiting.drain(..count).collect()
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// The right of a started task to serve calls. Given back when it is dropped, also by a panic of the task; but as long as
    /// calls wait, it goes to another task, which `start_task` starts.
    pub fn right<S: Fn()>(&self, start_task: S) -> RightToServe<'_, C, S> {
        RightToServe { calls: self, start_task }
    }
}

/// See [`WaitingCalls::right`].
#[derive(Debug)]
pub struct RightToServe<'a, C, S: Fn()> {
    calls: &'a WaitingCalls<C>,
    start_task: S,
}

impl<C, S: Fn()> Drop for RightToServe<'_, C, S> {
    fn drop(&mut self) {
        let mut state = self.calls.lock();
        if state.waiting.is_empty() {
            state.tasks -= 1;
            return;
        }
        drop(state);
        (self.start_task)();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn calls_are_bounded_and_taken_in_order() {
        let calls = WaitingCalls::new(3, 1);
        let pushed: Vec<Pushed> = (1..=4).map(|call| calls.push(call)).collect();
        assert_eq!(pushed, [Pushed::StartsTask, Pushed::Waits, Pushed::Waits, Pushed::Refused]);
        assert_eq!((calls.take(2), calls.take(2), calls.take(2)), (vec![1, 2], vec![3], vec![]));
    }

    #[test]
    fn a_right_is_given_back_or_passed_on() {
        let (calls, started) = (WaitingCalls::new(9, 1), Cell::new(0));
        assert_eq!(calls.push(1), Pushed::StartsTask);
        drop(calls.right(|| started.set(1)));
        assert_eq!((started.get(), calls.push(2)), (1, Pushed::Waits), "another task has the right");
        assert_eq!(calls.take(9), [1, 2]);
        drop(calls.right(|| started.set(2)));
        assert!(started.get() == 1 && calls.is_empty());
        assert_eq!(calls.push(3), Pushed::StartsTask);
    }
}
