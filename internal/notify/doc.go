// Package notify carries wakes: between the goroutines of a process (Hub) and between
// processes over LISTEN/NOTIFY (Publisher, Listener).
//
// A wake names a key and says "look again", nothing else. What is to be seen is in the
// database; this package must not know what the keys mean, and imports neither the
// domain nor the store. A process has one of each:
//
//	commit ─► Hub.Wake ───────────────────────────────► waiters here
//	      └─► Publisher ─► NOTIFY a2ad ─► Listener ─► Hub ─► waiters elsewhere
//
// # What is promised
//
//  1. Waiter first, then read. If Wake(k) begins after Wait(k) has returned, then when
//     it returns the waiter's channel holds a token or its owner has just taken one; if
//     after Watch(k), its function has been called. So the order of use is: Wait, read the
//     database, wait for the channel, read again.
//  2. Wakes merge. Any number of them before the waiter of a channel looks are one token. A wake may
//     come for nothing; no reader may infer from it that something changed.
//  3. Nobody is held up. Wake, WakeAll and Publish do no input or output and wait for
//     no consumer; the Listener wakes without waiting, so it never stops reading.
//  4. No traces. A key that nobody waits for costs no memory, before or after a wake.
//     After stop has returned its channel gets no more tokens, and its function is not called.
//  5. Leading edge. The first key published after a pause leaves at once; then there is
//     at most one flush per interval, and never two at a time. A flush takes all keys
//     published so far, each once.
//  6. Failures are bounded. Keys of a failed flush are kept and sent again, with backoff.
//     Beyond a number of keys they become one: wake all.
//  7. On stop the Publisher makes one last flush, with a timeout.
//  8. No gap on reconnect. Each time LISTEN has succeeded, and not before, the Listener
//     wakes every waiter, since what was sent in between is gone.
//  9. Silence is noticed. The Listener proves its connection alive each ping interval; a
//     dead one is given up within ping interval + ping timeout, whether or not the
//     network says so (without this it took pgx 151 s).
//  10. What cannot be read wakes all. A payload in another form, from a newer version, a
//     person or an empty NOTIFY, is never dropped. Those of the own replica are, because
//     the Hub has done that already.
//
// # What is not
//
// A wake is lost if the process dies between its commit and the flush, or if the
// connection dies with it. Therefore every waiter polls as well; a lost wake costs one
// poll interval and nothing else. Wakes of different keys have no order.
//
// # The payload
//
//	payload = replica 1*( SP key )
//	replica = 1*( char / escape )        ; the sender
//	key     = "*" / 1*( char / escape )  ; "*" means every key
//	char    = %x21-24 / %x26-7E          ; printable ASCII without blank and percent
//	escape  = "%" 2HEXDIG                ; any other byte
//
// At most 7,800 bytes, below PostgreSQL's limit of 8,000 with its NUL. Pure ASCII, so
// that no encoding of a database and no byte of a key can make the statement fail.
package notify
