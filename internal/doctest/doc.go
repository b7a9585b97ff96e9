// Package doctest keeps the documents true. It contains only tests. They run the commands and queries of the README,
// of docs/ and of sdk/ as a reader would paste them, in a fresh directory, on a fresh server and database. They also
// compare what the documents say about settings, versions and each other with the facts.
//
// A comment on the line above a fenced block says what to do with it:
//
//	<!-- run -->           a sh block is run, in the order of the document. All blocks of a
//	                       document share one shell, which ends with the first command that fails.
//	<!-- shows -->         the block is an excerpt of what the last one printed: its lines must be
//	                       there in this order. … stands for anything; ids, times and keys may differ.
//	<!-- not run: WHY -->  a sh block that no test can run.
//
// Files and SQL are in sh blocks too, as here-documents, so that a reader can paste them. The tests replace the ports
// and the database in the documents with free ones.
package doctest
