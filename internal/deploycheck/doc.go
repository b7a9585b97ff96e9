// Package deploycheck validates docker-compose.yml and the Kubernetes manifests with the tools that consume them: the
// libraries of docker compose and of kustomize read them, and the types of Kubernetes decode them strictly. It is a
// separate module, because these libraries have more dependencies than all of a2ad.
package deploycheck
