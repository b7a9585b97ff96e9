// Package deploycheck keeps docker-compose.yml and the manifests for Kubernetes what their own programs take: the
// libraries of docker compose and of kustomize read them, and the types of Kubernetes decode them strictly. It is a
// module of its own because they bring more than all that a2ad needs.
package deploycheck
