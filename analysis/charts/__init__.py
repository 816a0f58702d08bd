"""Charts as values, and two back ends that draw them: plotly for pages, matplotlib for print."""
