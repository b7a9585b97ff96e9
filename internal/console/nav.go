package console

// navItem is a page of the navigation. Its key opens it after g.
type navItem struct {
	Section, Name, Key string
	Current            bool
}

// Href returns the path of the page.
func (n navItem) Href() string { return Prefix + "/" + n.Section }

// navigation is all pages of the navigation, in its order.
var navigation = []struct {
	navItem
	shown func(*viewer) bool // to whom
}{
	{navItem{Section: "", Name: "Overview", Key: "o"}, (*viewer).Operator},
	{navItem{Section: "tasks", Name: "Tasks", Key: "t"}, everyone},
	{navItem{Section: "jobs", Name: "Bulk jobs", Key: "b"}, (*viewer).Operator},
	{navItem{Section: "inbox", Name: "Inbox", Key: "i"}, everyone},
	{navItem{Section: "playground", Name: "Playground", Key: "p"}, (*viewer).MayPlay},
	{navItem{Section: "agents", Name: "Agents", Key: "a"}, (*viewer).Operator},
	{navItem{Section: "workers", Name: "Workers", Key: "r"}, (*viewer).Operator},
	{navItem{Section: "webhooks", Name: "Webhooks", Key: "w"}, (*viewer).Operator},
	{navItem{Section: "schedules", Name: "Schedules", Key: "s"}, (*viewer).Operator},
	{navItem{Section: "audit", Name: "Audit log", Key: "l"}, (*viewer).Operator},
	{navItem{Section: "keys", Name: "API keys", Key: "k"}, (*viewer).Operator},
	{navItem{Section: "doctor", Name: "Doctor", Key: "d"}, (*viewer).Operator},
}

func everyone(*viewer) bool { return true }

// Nav returns the pages that the viewer may see.
func (f *frame) Nav() (list []navItem) {
	for _, n := range navigation {
		if n.shown(&f.viewer) {
			n.Current = n.Section == f.Section()
			list = append(list, n.navItem)
		}
	}
	return list
}
