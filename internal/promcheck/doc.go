// Package promcheck makes Prometheus itself read and evaluate the rules and queries below deploy. It is a separate
// module, so that a2ad is not built with Prometheus.
package promcheck
