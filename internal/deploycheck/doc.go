// Package deploycheck validates docker-compose.yml, the Kubernetes manifests and the Helm chart with the tools that
// consume them: the libraries of docker compose, of kustomize and of Helm read them, and the types of Kubernetes decode
// them strictly. It is a separate module, because these libraries have more dependencies than all of a2ad.
package deploycheck
