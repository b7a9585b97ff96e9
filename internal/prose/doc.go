// Package prose holds the texts of the code to the word list of the project, .vale/a2ad/Words.yml. Vale checks
// documents and help texts against the same list; this package checks what Vale cannot find: exported doc comments,
// error texts and log messages.
package prose
