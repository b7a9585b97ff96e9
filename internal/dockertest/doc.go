// Package dockertest runs docker-compose.yml and deploy/compose/ha.yml on a Docker daemon, as the documents say, and
// kills, stops, pauses and disconnects their containers under load. It has only tests: `make docker-test` and
// `make docker-ha-test` start a daemon for them.
package dockertest
