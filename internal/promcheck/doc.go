// Package promcheck has Prometheus itself read and evaluate the rules and queries below deploy. It is a
// module of its own, so that no a2ad is built with Prometheus.
package promcheck
