// Package notify carries wake-ups: between the goroutines of a process (Hub) and between processes over LISTEN/NOTIFY
// (Publisher, Listener).
//
// A wake-up names a key and says "read again", nothing else. The news is in the database. This package must not know
// what the keys mean, and imports neither the domain nor the store. A process has one of each:
//
//	commit ─► Hub.Wake ───────────────────────────────► waiters here
//	      └─► Publisher ─► NOTIFY a2ad ─► Listener ─► Hub ─► waiters elsewhere
//
// # What is promised
//
//  1. Waiter first, then read. If Wake(k) begins after Wait(k) has returned, then the waiter's channel has a token
//     when Wake returns, or its owner has just received one. After Watch(k), its function has been called. So the
//     order of use is: Wait, read the database, wait for the channel, read again.
//  2. Wake-ups merge. Any number of them before the waiter receives are one token. A wake-up may come for nothing:
//     no reader may infer from it that something changed.
//  3. No blocking. Wake, WakeAll and Publish do no input or output and wait for no consumer. The Listener wakes
//     without waiting, so it never stops reading.
//  4. No traces. A key without waiters costs no memory, before or after a wake-up. After stop has returned, the
//     channel gets no more tokens and the function is not called.
//  5. Leading edge. The first key published after a pause is sent immediately. After that there is at most one flush
//     per interval, and never two at a time. A flush sends all keys published so far, each once.
//  6. Failures are bounded. Keys of a failed flush are kept and sent again, with backoff. Too many keys become one
//     key that wakes all waiters.
//  7. On stop the Publisher makes one last flush, with a timeout.
//  8. No gap on reconnect. Each time LISTEN has succeeded, and not before, the Listener wakes every waiter, because
//     notifications that were sent in between are lost.
//  9. Dead connections are noticed. The Listener checks its connection in each ping interval. It gives up a dead one
//     within ping interval + ping timeout, even if the network does not report it (without this, pgx took 151 s).
//  10. An unreadable payload wakes all waiters. A payload in another form, from a newer version, a person or an empty
//     NOTIFY, is never dropped. Payloads of this replica are dropped, because its Hub has done the wake-up already.
//
// # What is not promised
//
// A wake-up is lost if the process dies between its commit and the flush, or if the connection breaks with it.
// Therefore every waiter also polls: a lost wake-up costs one poll interval and nothing else. Waiters for a whole class
// cannot poll for all of its keys: Losses wakes them when it is known that a process has died. Wake-ups of different
// keys have no order.
//
// # The payload
//
//	payload = replica 1*( SP key )
//	replica = 1*( char / escape )        ; the sender
//	key     = "*" / 1*( char / escape )  ; "*" means every key
//	char    = %x21-24 / %x26-7E          ; printable ASCII without space and percent
//	escape  = "%" 2HEXDIG                ; any other byte
//
// A payload has at most 7,800 bytes, below PostgreSQL's limit of 8,000 with its NUL. It is pure ASCII, so that no
// encoding of a database and no byte of a key can make the statement fail.
package notify
