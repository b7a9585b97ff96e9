package admin

import "slices"

// Routes lists the routes in order: method and path.
func Routes() []string {
	var all []string
	for i := range routes {
		all = append(all, routes[i].method+" "+routes[i].path)
	}
	slices.Sort(all)
	return all
}
