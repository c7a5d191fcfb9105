package trace

// Match tells whether text matches a glob in which * stands for any text and ?
// for one character. Everything else stands for itself.
func Match(glob, text string) bool {
	g, t := []rune(glob), []rune(text)
	star, mark := -1, 0 // last *, and how far its text reaches
	i, j := 0, 0
	for j < len(t) {
		switch {
		case i < len(g) && g[i] == '*':
			star, mark = i, j
			i++
		case i < len(g) && (g[i] == '?' || g[i] == t[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(g) && g[i] == '*' {
		i++
	}
	return i == len(g)
}
