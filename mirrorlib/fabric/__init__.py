"""Microsoft Fabric: the notebooks, the wheel and their schedule as items that git integration and fabric-cicd take."""
