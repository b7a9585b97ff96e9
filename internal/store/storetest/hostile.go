package storetest

// Hostile are texts that try to be something else in a browser or at a terminal: markup, scripts, links, escapes of
// terminals, characters that reverse, hide or widen others, and texts that break tables. Tests put each into the fields
// that clients and agents can set.
var Hostile = []string{
	`<script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`'><svg onload=alert(1)>`,
	`</textarea><script>alert(1)</script>`,
	`<svg><script href="data:text/javascript,alert(1)"/></svg>`,
	`javascript:alert(1)`,
	`data:text/html,<script>alert(1)</script>`,
	"\u202egnp.exe",
	"\u2066hidden\u2069",
	"\u200b",
	"\x1b[31mred\x1b[0m",
	"\x1b]8;;https://evil.example\x07",
	"\x00",
	`{{.FormToken}}`,
	`--><script>alert(1)</script>`,
	`</title><script>alert(1)</script>`,
	`<a href="javascript:alert(1)">x</a>`,
	`<iframe srcdoc="<script>alert(1)</script>">`,
	`<meta http-equiv=refresh content="0;url=https://evil.example">`,
	"\u009b31m",
	"\x1b[2J\x1b[Hcleared", "\x1b]0;title\x07", "\x1bP+q544e\x1b\\", "\r\x08\x7f",
	"a\r\nb\tc\vd\fe",
	"\U000e0041\ufeff\u00ad\u061c",
	"漢字かな交じり文の長い長い名前と、その続きがここにある。もう一度、長い長い名前。さらに続く文章です。",
	"👩‍👩‍👧‍👦🏳️‍🌈🇺🇳👍🏽 party 🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉🎉",
	"Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031ealgo",
	"wordwithoutanyspacethatislongerthanthewholelineofaterminalandthengoesonandonandonandonandonandonuntiltheend",
	"many short words in one long sentence that no table has room for on a terminal with eighty columns, or a hundred",
}
